"""Installation of the helper: complete or not at all."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nanobot.errors import NanobotError, StorageError
from nanobot_whatsapp.linked.install import (
    SOURCES,
    InstallFailed,
    NodeMissing,
    bridge_program,
    find_node,
    install,
)
from tests.channels.whatsapp.linked.programs import (
    BUILDS,
    NEW_ENOUGH,
    helper_sources,
    node_and_npm,
    program,
)


def silent(_: str) -> None:
    """Ignore the progress."""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    return helper_sources(tmp_path / "sources")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def folders(state: Path) -> list[str]:
    """Return the folders of an installation."""
    return sorted(folder.name for folder in state.iterdir() if folder.is_dir())


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_without_an_installation_there_is_no_program(state: Path, sources: Path) -> None:
    assert bridge_program(state, sources=sources) is None


async def test_the_program_is_there_once_it_was_installed(
    tmp_path: Path, state: Path, sources: Path
) -> None:
    node, said = node_and_npm(tmp_path / "bin"), list[str]()
    main = await install(state, node, said.append, sources=sources)
    assert main.read_text() == "// one\n"
    assert bridge_program(state, sources=sources) == main
    assert mode_of(state) == 0o700
    assert len(said) == 1
    assert await install(state, node, said.append, sources=sources) == main
    assert len(said) == 1, "nothing was to be done"


async def test_the_real_npm_installs_it_as_well(state: Path, sources: Path) -> None:
    try:
        node = find_node("node")
    except NodeMissing as missing:
        pytest.skip(str(missing))
    if shutil.which("npm") is None:
        pytest.skip("there is no npm")
    main = await install(state, node, silent, sources=sources)
    assert main.read_text() == "// one\n"


async def test_a_new_version_gets_a_helper_of_its_own_and_the_old_one_goes(
    tmp_path: Path, state: Path, sources: Path
) -> None:
    node = node_and_npm(tmp_path / "bin")
    old = await install(state, node, silent, sources=sources)
    helper_sources(sources, "two")
    assert bridge_program(state, sources=sources) is None
    new = await install(state, node, silent, sources=sources)
    assert new.read_text() == "// two\n"
    assert not old.exists()


@pytest.mark.parametrize(
    "npm",
    ["exit 1", f"{BUILDS}\n[ $1 = ci ]", "mkdir -p node_modules"],
    ids=["packages", "build", "-"],
)
async def test_a_failed_installation_leaves_nothing_but_what_was_there(
    npm: str, tmp_path: Path, state: Path, sources: Path
) -> None:
    old = await install(state, node_and_npm(tmp_path / "bin"), silent, sources=sources)
    helper_sources(sources, "two")
    with pytest.raises(InstallFailed):
        await install(state, node_and_npm(tmp_path / "bin", npm), silent, sources=sources)
    assert bridge_program(state, sources=sources) is None
    assert folders(state) == [old.parents[1].name]


async def test_what_npm_said_is_shown_where_it_failed(
    tmp_path: Path, state: Path, sources: Path
) -> None:
    says = "echo npm error code ENOSPC >&2; echo npm error it said why; exit 7"
    with pytest.raises(InstallFailed, match="exit code 7") as failed:
        await install(state, node_and_npm(tmp_path / "bin", says), silent, sources=sources)
    assert "code ENOSPC\n  npm error it said why" in failed.value.hint


async def test_packages_with_files_that_could_not_be_written_are_not_used(
    tmp_path: Path, state: Path, sources: Path
) -> None:
    """npm only warns of them, among many other warnings, and reports success."""
    many = "i=0; while [ $i -lt 2000 ]; do echo one package more; i=$((i+1)); done"
    warns = f"{BUILDS}\necho npm warn tar TAR_ENTRY_ERROR ENOSPC: no space left on device\n{many}"
    with pytest.raises(InstallFailed, match="ENOSPC"):
        await install(state, node_and_npm(tmp_path / "bin", warns), silent, sources=sources)
    assert folders(state) == []


async def test_without_npm_that_is_said(
    tmp_path: Path, state: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    node = program(tmp_path / "bin" / "node", f"echo {NEW_ENOUGH}")
    with pytest.raises(NodeMissing, match="npm"):
        await install(state, node, silent, sources=sources)


async def test_a_folder_that_cannot_be_used_is_said(tmp_path: Path, sources: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        await install(
            tmp_path / "file" / "state", node_and_npm(tmp_path / "bin"), silent, sources=sources
        )


async def test_npm_is_told_no_keys_that_stand_in_our_environment(
    tmp_path: Path, state: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    node = node_and_npm(tmp_path / "bin", f"env >{tmp_path}/seen\n{BUILDS}")
    await install(state, node, silent, sources=sources)
    seen = (tmp_path / "seen").read_text()
    assert "secret" not in seen
    assert "https_proxy=http://proxy.example:3128" in seen
    assert f"PATH={node.parent}:" in seen, "npm is run by the node that was found"


async def test_one_that_is_broken_off_ends_npm_and_leaves_nothing(
    tmp_path: Path, state: Path, sources: Path
) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    npm = f"echo $$ >{pipe}; exec sleep 1000"
    installing = asyncio.create_task(
        install(state, node_and_npm(tmp_path / "bin", npm), silent, sources=sources)
    )
    pid = int(await asyncio.to_thread(pipe.read_text))
    installing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await installing
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert folders(state) == []


_INSTALL = """
import asyncio, sys
from pathlib import Path
from nanobot_whatsapp.linked.install import install
state, node, sources = map(Path, sys.argv[1:])
asyncio.run(install(state, node, print, sources=sources))
"""


async def test_one_that_is_killed_is_done_anew_once_its_npm_is_gone(
    tmp_path: Path, state: Path, sources: Path
) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    stuck = f"{BUILDS}\n[ $1 = ci ] || {{ echo $$ >{pipe}; exec sleep 1000; }}"
    node = node_and_npm(tmp_path / "bin", stuck)
    arguments = [sys.executable, "-c", _INSTALL, str(state), str(node), str(sources)]
    killed = await asyncio.create_subprocess_exec(
        *arguments, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    npm = int(await asyncio.to_thread(pipe.read_text))
    killed.kill()
    await killed.wait()
    assert bridge_program(state, sources=sources) is None

    node_and_npm(tmp_path / "bin")
    with pytest.raises(NanobotError, match="already being installed"):  # its npm still writes there
        await install(state, node, silent, sources=sources)

    watched = os.pidfd_open(npm)
    gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(watched, gone.set)
    os.kill(npm, signal.SIGKILL)
    await gone.wait()
    asyncio.get_running_loop().remove_reader(watched)
    os.close(watched)
    main = await install(state, node, silent, sources=sources)
    assert main.read_text() == "// one\n"
    assert folders(state) == [main.parents[1].name]


def test_each_package_is_pinned_to_the_byte_and_to_no_address() -> None:
    lock = json.loads((SOURCES / "package-lock.json").read_bytes())
    packages = [package for path, package in lock["packages"].items() if path]
    assert packages
    assert all("integrity" in package for package in packages)
    assert not any("resolved" in package for package in packages)


def test_a_checkout_in_which_it_was_built_is_used_until_it_changes(
    state: Path, sources: Path
) -> None:
    for made in ("node_modules/.package-lock.json", "dist/main.js"):
        (sources / made).parent.mkdir()
        (sources / made).touch()
    assert bridge_program(state, sources=sources) == sources / "dist" / "main.js"
    built = (sources / "dist" / "main.js").stat().st_mtime_ns
    os.utime(sources / "src" / "main.ts", ns=(built + 1_000_000, built + 1_000_000))
    assert bridge_program(state, sources=sources) is None
