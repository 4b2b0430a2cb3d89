"""Protected files stay unchanged, even if a person changes them outside at the same time."""

from __future__ import annotations

import shutil
import signal

from nanobot.security.sandbox import Sandbox
from tests.security.sandbox.folders import SECRET, SandboxFolders, start_process


async def test_what_is_missing_is_made_and_protected(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    (folders.workspace / "SOUL.md").unlink()
    end = await folders.run(sandbox, "echo evil > SOUL.md; mkdir skills/evil; ls -d SOUL.md")
    assert end.output == "SOUL.md\n"
    assert (folders.workspace / "SOUL.md").read_bytes() == b""
    assert list((folders.workspace / "skills").iterdir()) == []


async def test_a_link_in_its_place_stops_the_command(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    (folders.workspace / "SOUL.md").unlink()
    (folders.workspace / "SOUL.md").symlink_to(folders.outside / "secret")
    end = await folders.run(sandbox, "echo evil > SOUL.md; echo ran")
    assert (end.code, end.output) == (125, "")
    assert "SOUL.md is a link" in end.complaints
    (folders.workspace / "memory").rename(folders.workspace / "moved")
    (folders.workspace / "memory").symlink_to(folders.outside)
    end = await folders.run(sandbox, "echo ran", read_only=("memory/MEMORY.md",))
    assert (end.code, end.output) == (125, "")
    assert (folders.outside / "secret").read_bytes() == SECRET


async def test_one_that_is_replaced_outside_ends_the_command(
    bubblewrap: Sandbox, folders: SandboxFolders
) -> None:
    command = ("/bin/sh", "-c", "echo ready; sleep 600")
    child = await start_process(bubblewrap.launch(command, folders.confined))
    assert child.stdout is not None
    assert await child.stdout.readline() == b"ready\n"
    new = folders.workspace / "new"
    new.write_bytes(b"by the owner\n")
    new.rename(folders.workspace / "SOUL.md")
    _, complaints = await child.communicate()
    assert child.returncode == -signal.SIGKILL
    assert complaints == b"nanobot: stopped: a protected file was replaced while the command ran\n"


async def test_one_that_is_removed_and_made_anew_ends_the_command(
    bubblewrap: Sandbox, folders: SandboxFolders
) -> None:
    # Many file systems reuse the inode number of the last removed file.
    git = folders.workspace / "repo" / ".git"
    command = ("/bin/sh", "-c", "echo ready; sleep 2; echo evil > repo/.git/config; sleep 600")
    for folder in (git, git.parent):
        git.mkdir(parents=True, exist_ok=True)
        child = await start_process(bubblewrap.launch(command, folders.confined))
        assert child.stdout is not None
        assert await child.stdout.readline() == b"ready\n"
        shutil.rmtree(folder)
        git.mkdir(parents=True)
        _, complaints = await child.communicate()
        assert child.returncode == -signal.SIGKILL
        assert complaints.startswith(b"nanobot: stopped: a protected file was replaced")
        assert list(git.parent.rglob("config")) == []


async def test_a_file_with_a_name_outside_is_not_changed_through_its_name_in_the_workspace(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    work = folders.workspace / "work"
    (work / "linked").hardlink_to(folders.outside / "secret")
    (work / "soul").hardlink_to(folders.workspace / "SOUL.md")
    (work / "twice").hardlink_to(work / "file")
    (folders.workspace / "project/tool").mkdir()
    (folders.workspace / "project/tool/.newtool").write_text("kept\n")
    (work / "tool").hardlink_to(folders.workspace / "project/tool/.newtool")
    end = await folders.run(
        sandbox,
        "cat work/linked; for i in linked soul tool twice; do echo x > work/$i; done;"
        " ln work/linked work/again && echo x > work/again; mv work/linked work/moved;"
        " echo x >> work/moved; exit 0",
    )
    assert end.output == "secret\n"
    assert (folders.outside / "secret").read_bytes() == SECRET
    assert (folders.workspace / "SOUL.md").read_bytes() == SECRET
    assert (work / "tool").read_text() == "kept\n"
    assert (work / "file").read_text() == "x\n"


async def test_too_many_of_them_are_not_run_beside(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    for number in range(1_001):
        (folders.outside / f"f{number}").write_text("x")
        (folders.workspace / "work" / f"f{number}").hardlink_to(folders.outside / f"f{number}")
    end = await folders.run(sandbox, "echo ran")
    assert end.output == ""
    assert "1,001 files, such as work/f" in end.complaints
