"""Every program that nanobot starts has an absolute path and a minimal environment, and one module
starts them all."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nanobot import programs
from nanobot.programs import Launch

ROOT = Path(__file__).parents[1]
ALLOWED = ("nanobot/programs.py", "nanobot/security/confine/")
"""The second is the sandbox, which becomes the command."""

ANYWHERE = {
    *("Popen", "create_subprocess_exec", "create_subprocess_shell", "ProcessPoolExecutor"),
    *("subprocess_exec", "subprocess_shell", "posix_spawn", "posix_spawnp", "forkpty"),
    *(f"{kind}{ending}" for kind in ("exec", "spawn") for ending in ("v", "ve", "vp", "vpe")),
    *(f"{kind}{ending}" for kind in ("exec", "spawn") for ending in ("l", "le", "lp", "lpe")),
    *("check_call", "check_output", "getoutput", "getstatusoutput", "find_library", "getnode"),
}
OF_MODULES = {
    "os": {*ANYWHERE, "system", "popen", "fork", "startfile"},
    "subprocess": {*ANYWHERE, "run", "call"},
    "shutil": {"which"},
}
MODULES = {"multiprocessing", "webbrowser", "pty", "distro", "pexpect", "ptyprocess"}


def starts(source: str) -> Iterator[str]:
    """Return the parts of a program that start another one, or look one up."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                yield from MODULES & {alias.name.partition(".")[0] for alias in node.names}
            case ast.ImportFrom():
                names = {alias.name for alias in node.names}
                yield from MODULES & {(node.module or "").partition(".")[0]}
                yield from OF_MODULES.get(node.module or "", ANYWHERE) & names
            case ast.Attribute():
                of = node.value.id if isinstance(node.value, ast.Name) else ""
                yield from OF_MODULES.get(of, ANYWHERE) & {node.attr}


def test_one_module_starts_programs() -> None:
    found = {}
    files = [*ROOT.glob("nanobot/**/*.py"), *ROOT.glob("channels/*/**/*.py")]
    assert len(files) > 300
    for path in files:
        name = str(path.relative_to(ROOT))
        if "node_modules" not in name and not name.startswith(ALLOWED):
            found[name] = sorted(starts(path.read_text()))
    assert {name: some for name, some in found.items() if some} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import subprocess\nsubprocess.run(['git'])",
        "import subprocess as s\ns.Popen(['git'])",
        "from subprocess import run\nrun(['git'])",
        "import asyncio\nasyncio.create_subprocess_exec('git')",
        "loop.subprocess_exec(None, 'git')",
        "import os\nos.execvp('git', ['git'])",
        "from os import system as go\ngo('git')",
        "import webbrowser",
        "from multiprocessing import Process",
        "import shutil\nshutil.which('git')",
    ],
)
def test_a_way_to_start_a_program_is_recognised(source: str) -> None:
    assert [*starts(source)]


def test_a_program_without_an_absolute_path_or_folder_is_not_started() -> None:
    for argv, cwd in ((("git",), "/"), (("./git",), "/"), (("/bin/true",), "."), (("",), "/")):
        with pytest.raises(ValueError, match="not an absolute path"):
            Launch(argv, {}, cwd)


def test_programs_are_found_in_absolute_folders_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (tmp_path, tmp_path / "bin"):
        folder.mkdir(exist_ok=True)
        (folder / "tool").write_text("#!/bin/sh\n")
        (folder / "tool").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", ".::bin")
    assert [programs.find(name) for name in ("tool", "./tool", "bin/tool", "")] == [""] * 4
    assert programs.find("tool", f".:{tmp_path}/bin:bin") == f"{tmp_path}/bin/tool"
    assert programs.find(f"{tmp_path}/tool") == f"{tmp_path}/tool"
    assert programs.find("tool", "") == ""
    (tmp_path / "bin").chmod(0o777)  # anyone may have put it there
    assert programs.find("tool", f"{tmp_path}/bin") == ""
    with pytest.raises(FileNotFoundError):
        programs.program("tool")


def test_an_environment_holds_only_what_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "PYTHONPATH",
        "LD_PRELOAD",
        "GIT_SSH_COMMAND",
        "NODE_OPTIONS",
        "BASH_ENV",
        "MY_KEY",
        "A",
    ):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("HOME", "/home/ada")
    built = programs.environment("A", B="2")
    assert {"A": "x", "B": "2", "HOME": "/home/ada"}.items() <= built.items()
    assert (
        not {"PYTHONPATH", "LD_PRELOAD", "GIT_SSH_COMMAND", "NODE_OPTIONS", "MY_KEY"} & built.keys()
    )
    ours = programs.own_command("status").env
    assert ours["MY_KEY"] == "x"  # settings may name it
    assert not {"LD_PRELOAD", "GIT_SSH_COMMAND", "NODE_OPTIONS", "BASH_ENV"} & ours.keys()
    assert ours["PYTHONPATH"] != "x"
    assert programs.own_script(Path("/x.py"), C="3").env.keys() == {"PYTHONPATH", "LC_ALL", "C"}


def test_relative_folders_and_those_of_the_agent_are_not_trusted(tmp_path: Path) -> None:
    """In a separate process, as at the start of `nanobot`."""
    work = tmp_path / "workspace"
    (work / "bin").mkdir(parents=True)
    script = (
        "import os, sys; from pathlib import Path; from nanobot.cli import search_paths as paths\n"
        f"sys.path.append({str(work / 'modules')!r})\n"
        "paths.trust_no_relative_folder()\n"
        f"paths.trust_nothing_below(Path({str(work)!r}))\n"
        "print(os.environ['PATH'], os.environ['PYTHONPATH'], *sys.path, sep='\\n')"
    )
    environ = {"PATH": f".:/usr/bin::{work}/bin:bin", "PYTHONPATH": f":{tmp_path}:lib"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, cwd=work, env=environ, capture_output=True, text=True, check=True, timeout=60
    )
    path, modules, *rest = done.stdout.splitlines()
    assert (path, modules) == ("/usr/bin", str(tmp_path))
    assert not [one for one in rest if one.startswith(str(work))]
    assert str(tmp_path) in rest
    assert any(Path(one, "msgspec").is_dir() for one in rest if one)


PROBE = """
import sys, traceback, json
from pathlib import Path
seen = open({seen!r}, "a")
def hook(event, values):
    if event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "os.spawn"):
        files = [frame.filename for frame in traceback.extract_stack()]
        ours = any(file.endswith("nanobot/programs.py") for file in files)
        program, cwd = str(values[0]), str(values[2]) if event == "subprocess.Popen" else "/"
        print(json.dumps([event, program, cwd, ours]), file=seen, flush=True)
sys.addaudithook(hook)
from nanobot.cli.main import main
sys.exit(main({words!r}))
"""


@pytest.mark.parametrize("words", [["doctor", "--json"], ["agent", "-m", "hello"], ["status"]])
def test_whatever_is_started_while_nanobot_works_is_started_by_that_module(
    words: list[str], tmp_path: Path
) -> None:
    """This includes libraries: Python reports each started program."""
    seen = tmp_path / "seen"
    (tmp_path / "home").mkdir(mode=0o700)
    environ = {**os.environ, "NANOBOT_HOME": str(tmp_path / "home")}
    probe = PROBE.format(seen=str(seen), words=words)
    subprocess.run(
        [sys.executable, "-P", "-c", probe],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        timeout=120,
        check=False,
    )
    events = [json.loads(line) for line in seen.read_text().splitlines()]
    assert [one for one in events if not (one[1][0] == one[2][0] == "/" and one[3])] == []
    if words[0] == "doctor":
        assert [one for one in events if one[0] == "subprocess.Popen"]
