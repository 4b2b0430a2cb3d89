"""A command can't create files that a person's programs run automatically in a folder."""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import signal
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.programs import Launch
from nanobot.security.confine import autorun
from nanobot.security.sandbox import Sandbox
from tests.security.sandbox.folders import PYTHON, UNSEEN, CommandEnd, SandboxFolders, start_process
from tests.support import PATIENCE

pytestmark = pytest.mark.process

HOOKED = (
    "mkdir -p {0}/hooks; printf '[core]\\nrepositoryformatversion = 0\\nfsmonitor = touch"
    " {1}\\n' > {0}/config; printf '#!/bin/sh\\ntouch {1}\\n' > {0}/hooks/post-checkout"
)
"""Makes git run a command in the repository {0}."""


async def beside(
    sandbox: Sandbox, folders: SandboxFolders, command: str, *person: str
) -> CommandEnd:
    """Run a command until it is ended, while a person works in `work`."""
    launch = sandbox.launch(("/bin/bash", "-c", f"echo ready; {command}"), folders.confined)
    child = await ready(launch)
    if person:
        await asyncio.to_thread(by_hand, folders.workspace / "work", *person)
    return await end_of(child)


async def ready(launch: Launch) -> asyncio.subprocess.Process:
    """Return a command that has reported that it runs."""
    child = await start_process(launch)
    assert child.stdout is not None
    assert await child.stdout.readline() == b"ready\n"
    return child


async def end_of(child: asyncio.subprocess.Process) -> CommandEnd:
    """Return how it was ended."""
    try:
        async with asyncio.timeout(PATIENCE):
            output, complaints = await child.communicate()
    except TimeoutError:
        os.killpg(child.pid, 9)
        await child.communicate()
        raise AssertionError("the command ran on") from None
    assert child.returncode is not None
    return CommandEnd(child.returncode, output.decode(), complaints.decode())


def by_hand(folder: Path, *command: str) -> None:
    """Run a person's own command, outside."""
    subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=PATIENCE)


@pytest.mark.parametrize(
    "person",
    [
        ("git", "init", "-q", "new"),
        ("git", "init", "-q", "--bare", "new"),
        ("git", "init", "-q", "--separate-git-dir", "../project/code.git", "new"),
        ("cp", "-r", "../../repository", "new"),
        ("mv", "../../repository", "new"),
    ],
    ids=["init", "bare", "a .git file", "copied", "moved in"],
)
async def test_a_repository_that_appears_is_none_that_a_command_can_configure(
    sandbox: Sandbox, folders: SandboxFolders, person: tuple[str, ...]
) -> None:
    await asyncio.to_thread(by_hand, folders.folder, "git", "init", "-q", "repository/deep/er")
    marker = folders.folder / "ran"
    places = "work/new/.git work/new work/new/deep/er/.git project/code.git"
    write = HOOKED.format("$g", marker)
    wait = f"while :; do for g in {places}; do if [ -e $g/config ]; then {write}; fi; done; done"
    end = await beside(sandbox, folders, wait, *person)
    assert "stopped: " in end.complaints
    for place in ("work/new", "work/new/deep/er", "project/code.git"):
        folder = folders.workspace / place
        if folder.is_dir():
            await asyncio.to_thread(by_hand, folder, "git", "status")
            await asyncio.to_thread(by_hand, folder, "git", "checkout", "-b", "x")
    assert not marker.exists()


async def test_what_appears_is_noticed_while_memory_is_counted(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    ledger = os.memfd_create("ledger")
    confined = replace(folders.confined, ledger=ledger)
    child = await ready(sandbox.launch(("/bin/sh", "-c", "echo ready; sleep 600"), confined))
    fcntl.lockf(ledger, fcntl.LOCK_EX)
    await asyncio.sleep(0.3)  # the counting hangs from now on
    gone = select.poll()  # `child.wait` would wait for the watcher as well, which hangs
    gone.register(os.pidfd_open(child.pid), select.POLLIN)
    try:
        by_hand(folders.workspace / "work", "mkdir", ".git")
        assert await asyncio.to_thread(gone.poll, 10_000)
    finally:
        os.close(ledger)
    _, complaints = await child.communicate()
    assert b"stopped: " in complaints


@pytest.mark.parametrize(
    "make",
    [
        "git init -q work/a || mkdir -p work/a/.git",
        "git init -q --bare work/a || mkdir -p work/a/refs work/a/objects; echo > work/a/HEAD",
        "mkdir -p work/a/b/c/d/e && cd work/a/b/c/d/e && echo gitdir: x > .git",
        "mkdir -p $TMPDIR/a/.git && mv $TMPDIR/a work/b",
        "mkdir work/gone/.git && rm -r work/gone/.git",
        "mkdir -p work/shut/.git && chmod 0 work/shut",
        "mkdir work/x && mv work/x work/.git",
        "ln -s x work/.git",
        "cd work; for i in {1..170}; do mkdir d; cd d; done; mkdir .git",
        "mkdir work/.hg",
        "mkdir -p work/a && echo 'touch ran' > work/a/.envrc",
        "mkdir -p work/a/.vscode && echo {} > work/a/.vscode/tasks.json",
        "echo {} > work/t && mv work/t work/.mcp.json",
        "ln work/file work/CLAUDE.md",
        "echo x=1 > work/.env",
        "mkdir -p work/.newtool/a; echo x > work/.newtool/a/.envrc",
        "mkdir -p work/a/conf.d work/mise; echo > work/mise/config.dev.toml",
        "echo {} > work/My.Code-Workspace",
        "mkdir work/.g$(printf '\\u200c')it",
        "mkdir -p work/.claude/.git",
    ],
)
async def test_a_command_that_makes_one_is_ended_and_it_is_put_out_of_use(
    sandbox: Sandbox, folders: SandboxFolders, make: str
) -> None:
    (folders.workspace / "work" / "gone").mkdir()
    end = await beside(sandbox, folders, f"({make}); sleep 600")
    assert "stopped: " in end.complaints
    assert in_force(folders.workspace / "work") == []


def in_force(folder: Path) -> list[str]:
    """Return the automatic files below a folder. `HEAD` alone is not a repository."""
    found = [path for path in folder.rglob("*") if not _is_lone_head(path)]
    below = (str(path.relative_to(folder)) for path in found)
    return [path for path in below if autorun.runs_by_itself(path)]


def _is_lone_head(path: Path) -> bool:
    others = {"objects", "commondir"} & {one.name for one in path.parent.iterdir()}
    return path.name == "HEAD" and not others


async def test_another_name_with_a_dot_is_put_out_of_use_when_the_command_ends(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    work = folders.workspace / "work"
    end = await folders.run(
        sandbox,
        "cd work; echo x > .newtool.toml; mkdir -p .newer/deep; echo x > .tmp; mv .tmp kept;"
        " mkdir -p node_modules/a/.vscode node_modules/.bin .venv/bin .pytest_cache;"
        " echo x > .gitignore",
    )
    assert end.code == 0, end.complaints
    assert in_force(work) == []
    assert "'work/.newtool.toml' was created" in end.complaints
    assert (work / "dot-newer/deep").is_dir()
    for kept in ("kept", ".venv/bin", ".pytest_cache", ".gitignore", "node_modules/.bin"):
        assert (work / kept).exists()


@pytest.mark.parametrize(
    "make",
    [
        "mkdir objects",
        "ln -s .objects objects",
        "mkdir o; mv o objects",
        "echo . > commondir",
        "mkdir ../p; mv HEAD objects ../p; cd ../p; mkdir objects",
    ],
)
async def test_a_file_called_head_is_ordinary_until_its_folder_is_a_repository(
    sandbox: Sandbox, folders: SandboxFolders, make: str
) -> None:
    work = folders.workspace / "work"
    end = await folders.run(
        sandbox,
        "cd work; mkdir -p src/HEAD a/refs; echo x > src/HEAD/a; echo x > a/HEAD; sleep 0.3",
    )
    assert (end.code, end.complaints) == (0, "")
    end = await beside(sandbox, folders, f"cd work/a; echo x > .new.toml; {make}; sleep 600")
    assert "stopped: " in end.complaints
    assert not [*work.glob("?/HEAD"), *work.glob("?/.new.toml")]
    assert (work / "src/HEAD/a").exists()


async def test_one_among_packages_that_is_changed_is_put_out_of_use(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    package = folders.workspace / "work/vendor/a"
    for name in (".vscode/tasks.json", ".vscode/deep/kept", ".idea/kept", "CLAUDE.md"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("kept\n")
    end = await folders.run(
        sandbox, "cd work/vendor/a; echo x >> .vscode/tasks.json; echo x >> CLAUDE.md"
    )
    assert end.code == 0, end.complaints
    assert {path.name for path in package.iterdir()} == {"dot-vscode", ".idea", "dot-CLAUDE.md"}


async def test_one_that_is_gone_by_the_time_it_is_held_stops_no_command(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    """Another program creates a file briefly, again and again."""
    loop = """if True:
        import os, sys
        for number in range(10**9):
            open(f"{sys.argv[1]}/.x{number}", "w").close()
            os.remove(f"{sys.argv[1]}/.x{number}")
    """
    command = (*PYTHON, "-c", loop, str(folders.workspace / "work"))
    neighbour = await asyncio.create_subprocess_exec(*command)
    ends = [await folders.run(sandbox, "echo ran") for _ in range(4)]
    assert neighbour.returncode is None, "one of its files was renamed"
    neighbour.kill()
    await neighbour.wait()
    assert [end.output for end in ends] == ["ran\n"] * 4, ends


async def test_a_person_who_saves_one_ends_no_command(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    work = folders.workspace / "work"
    (work / ".newtool").write_text("old\n")
    end = await beside(
        sandbox,
        folders,
        "until [ -e go ]; do cd $PWD/work 2>/dev/null; sleep 0.05; done; cat .newtool",
        *("sh", "-c", "echo new > t && mv t .newtool && sleep 0.3 && touch go"),
    )
    assert (end.code, end.output) == (0, "new\n"), end.complaints
    assert (work / ".newtool").read_text() == "new\n"


async def test_a_program_keeps_its_own_in_a_folder_where_no_person_works(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    work = folders.workspace / "work"
    end = await folders.run(sandbox, "echo a > work/.state", own_folder=True)
    assert end.code == 0, end.complaints
    end = await folders.run(sandbox, "echo b > work/.state; cat work/.state", own_folder=True)
    assert end.output == "b\n"
    end = await folders.run(sandbox, "echo x > work/.envrc; sleep 600", own_folder=True)
    assert "stopped: " in end.complaints
    assert {path.name for path in work.iterdir()} == {"file", ".state", "dot-envrc"}


async def test_an_archive_of_a_project_can_be_unpacked(
    bubblewrap: Sandbox, folders: SandboxFolders
) -> None:
    work = folders.workspace / "work"
    end = await folders.run(
        bubblewrap,
        "cd $TMPDIR && mkdir -p p/.github/workflows p/src p/.circleci && touch p/.gitignore"
        " p/.eslintrc.json p/src/a.py p/rust-toolchain.toml p/flake.nix p/.github/workflows/a.yml"
        " && tar cf p.tar p && cd - && cd work && tar xf $TMPDIR/p.tar",
    )
    assert end.code == 0, end.complaints
    assert (work / "p/src/a.py").exists()
    assert (work / "p/.gitignore").exists()
    assert (work / "p/dot-github/workflows/a.yml").exists()
    assert in_force(work) == []


async def test_many_of_them_are_put_out_of_use_and_some_named(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    end = await folders.run(sandbox, "cd work; for i in $(seq 100); do echo > .x$i; done")
    assert in_force(folders.workspace / "work") == []
    assert "80 more files were renamed" in end.complaints
    assert len(end.complaints) < 3_000


async def test_one_that_was_there_can_be_read_and_not_changed(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    project = folders.workspace / "project"
    (project / "src").mkdir()
    (project / "CLAUDE.md").write_text("kept\n")
    (project / ".vscode").mkdir()
    (project / ".vscode" / "tasks.json").write_text("kept\n")
    (project / "AGENTS.md").symlink_to("CLAUDE.md")
    end = await folders.run(
        sandbox,
        "cd project; cat CLAUDE.md; echo x > CLAUDE.md; rm -rf .vscode; mv CLAUDE.md src/a;"
        " echo x > .vscode/tasks.json; echo x > src/new",
    )
    assert end.output == "kept\n"
    assert (project / "CLAUDE.md").read_text() == "kept\n"
    assert (project / ".vscode" / "tasks.json").read_text() == "kept\n"
    assert (project / "src" / "new").exists()


async def test_without_watches_one_that_appears_is_found_all_the_same(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    """The kernel's event queue overflows."""
    most = max_queued_events()
    many = folders.workspace / "work" / "many"
    many.mkdir()
    flood = f"for n in range({most}): os.rename(str(n), str(n + 1))"
    rest = f"os.remove('{most}'); os.mkdir('.git'); print('done', flush=True); time.sleep(600)"
    wait = "while not os.path.exists('0'): time.sleep(0.01)"
    program = "import os, time; os.chdir('work/many'); print('ready', flush=True)"
    confined = replace(folders.confined, extra_read_only=UNSEEN)
    child = await ready(
        sandbox.launch((*PYTHON, "-c", f"{program}\n{wait}\n{flood}\n{rest}"), confined)
    )
    assert child.stdout is not None
    os.kill(watcher := watcher_of(child), signal.SIGSTOP)
    (many / "0").touch()
    assert await child.stdout.readline() == b"done\n"
    os.kill(watcher, signal.SIGCONT)
    end = await end_of(child)
    assert "stopped: " in end.complaints
    assert in_force(folders.workspace / "work") == []


def max_queued_events() -> int:
    """Return the size of the kernel's event queue."""
    return int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())


def watcher_of(child: asyncio.subprocess.Process) -> int:
    """Return the watcher process of a command."""
    processes = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    lines = {int(one): Path(f"/proc/{one}/cmdline").read_bytes() for one in processes}
    (watcher,) = (one for one, line in lines.items() if b"\0start\0" in line)
    return watcher


async def test_where_a_command_cannot_write_nothing_that_appears_ends_it(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    """Guests' folders are inside the owner's. Their files end only their own commands."""
    await beside(
        sandbox,
        folders,
        "until [ -e work/go ]; do sleep 0.05; done; kill $$",
        *("sh", "-c", "mkdir -p ../people/x/.git ../memory/.git; touch go"),
    )
    assert (folders.workspace / "people/x/.git").is_dir()
    assert (folders.workspace / "memory/.git").is_dir()


async def test_what_dies_with_its_command_makes_none_after_it_was_looked_for(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    one = "while :; do mkdir -p work/$i/.git/hooks; done"
    for last in ("sleep 600", "sleep 0.01", "exit 0"):
        end = await beside(sandbox, folders, f"for i in {{1..40}}; do ({one}) & done; {last}")
        assert in_force(folders.workspace / "work") == [], end.complaints
