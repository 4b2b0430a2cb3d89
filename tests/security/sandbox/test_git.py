"""No repository that a command can write is accepted by a program outside."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from nanobot.security.confine.tree import Tree
from nanobot.security.sandbox import FoundSandbox, Sandbox
from tests.security.sandbox.conftest import working
from tests.security.sandbox.folders import SECRET, CommandEnd, SandboxFolders


@dataclass(frozen=True, slots=True)
class Aftermath:
    """The state after a command has tried everything."""

    folders: SandboxFolders
    other: Path
    end: CommandEnd


@pytest.fixture(scope="module", params=["bubblewrap", "landlock"])
def aftermath(
    request: pytest.FixtureRequest,
    every_sandbox: dict[str, FoundSandbox],
    tmp_path_factory: pytest.TempPathFactory,
) -> Aftermath:
    folders, other = (
        SandboxFolders(tmp_path_factory.mktemp("git")),
        tmp_path_factory.mktemp("other"),
    )
    for name in ("project/old/objects", "project/old/refs", "project/old/hooks"):
        (folders.workspace / name).mkdir(parents=True)
    (other / "old" / ".git").mkdir(parents=True)
    for file in (
        folders.workspace / "project/old/HEAD",
        folders.workspace / "project/old/config",
        other / "old/.git/config",
    ):
        file.write_bytes(SECRET)
    command = (
        "rm -rf project/.git; echo x > project/.git/config; echo x > project/old/config;"
        f" cd {other}; echo x > old/.git/config; mv old gone; exit 0"
    )
    run = folders.run(working(every_sandbox[request.param]), command, writable=(other,))
    return Aftermath(folders, other, asyncio.run(run))


def test_one_that_was_there_stays_as_it_was(aftermath: Aftermath) -> None:
    project = aftermath.folders.workspace / "project"
    assert (project / ".git/config").read_bytes() == SECRET
    assert (project / "sub/.git").read_bytes() == SECRET


def test_a_bare_repository_is_one_too(aftermath: Aftermath) -> None:
    assert aftermath.end.code == 0
    old = aftermath.folders.workspace / "project" / "old"
    assert (old / "config").read_bytes() == (old / "HEAD").read_bytes() == SECRET


def test_in_what_else_can_be_written_it_is_the_same(aftermath: Aftermath) -> None:
    assert (aftermath.other / "old" / ".git" / "config").read_bytes() == SECRET


async def test_one_made_in_what_else_can_be_written_ends_the_command(
    sandbox: Sandbox, folders: SandboxFolders, disk_path: Path
) -> None:
    other = disk_path / "other"
    other.mkdir()
    end = await folders.run(sandbox, f"mkdir {other}/.git; sleep 600", writable=(other,))
    assert "stopped: '.git' appeared" in end.complaints
    assert [path.name for path in other.iterdir()] == ["dot-git"]


def test_each_that_was_not_there_gets_another_name(disk_path: Path) -> None:
    """Including repositories inside others, and inside just renamed ones."""
    made = "a/.git a/dot-git b/c/.GIT/d/.git new/objects new/refs .git/objects .git/refs tree shut"
    for name in made.split():
        (disk_path / name).mkdir(parents=True)
    for name in ("new/HEAD", "tree/HEAD", "tree/commondir", ".git/HEAD", "shut/.git"):
        (disk_path / name).write_text("x\n")
    (disk_path / "link").symlink_to("a")
    (disk_path / "a/b").mkdir()
    (disk_path / "a/b/.git").symlink_to("..")
    (disk_path / "shut").chmod(0o500)
    list(Tree(str(disk_path)).disable_triggers())
    assert Tree(str(disk_path)).find_triggers() == []
    assert (disk_path / "a/dot-git-2").is_dir()
    assert (disk_path / "b/c/dot-git/d/dot-git").is_dir()
    assert (disk_path / "dot-git/dot-HEAD").exists()


async def test_the_owner_may_allow_repositories(sandbox: Sandbox, folders: SandboxFolders) -> None:
    await folders.run(sandbox, "mkdir work/.git && echo x > project/.git/config", hide_git=False)
    assert (folders.workspace / "work/.git").is_dir()
    assert (folders.workspace / "project/.git/config").read_text() == "x\n"


async def test_one_that_is_a_link_is_not_run_beside(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    (folders.workspace / "work" / ".git").symlink_to(folders.outside)
    end = await folders.run(sandbox, "echo ran")
    assert end.output == ""
    assert "work/.git is a link" in end.complaints


def test_one_in_a_folder_that_cannot_be_listed_is_found(disk_path: Path) -> None:
    """Not as root, which ignores all modes."""
    if os.getuid() == 0:
        os.chown(disk_path, 65_534, 65_534)
    script = """if True:
        import os, sys
        from nanobot.security.confine.tree import Tree
        os.chdir(sys.argv[1])
        if os.getuid() == 0:
            os.setuid(65_534)
        for name in ("closed", "shut", "still"):
            os.makedirs(f"{name}/inner/.git")
            os.chmod(f"{name}/inner", 0o500 if name == "still" else 0)
        os.chmod("closed", 0)
        os.chmod("shut", 0o300)
        found = Tree(".").find_triggers()
        assert {"closed/inner/.git", "still/inner/.git"} <= {one.path for one in found}
        known = [one for one in found if one.path == "still/inner/.git"]
        print(len(list(Tree(".").disable_triggers(known))))
    """
    arguments = (sys.executable, "-S", "-c", script, str(disk_path))
    ran = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("2\n", "")


def test_one_in_a_folder_that_is_closed_again_and_again_is_found(disk_path: Path) -> None:
    """A command could do that while another one starts, which must not see the repository."""
    if os.getuid() == 0:
        os.chown(disk_path, 65_534, 65_534)
    script = """if True:
        import os, sys
        from nanobot.security.confine.tree import Tree
        os.chdir(sys.argv[1])
        if os.getuid() == 0:
            os.setuid(65_534)
        os.makedirs("a/b/.git")
        for number in range(100):
            os.mkdir(f"a/{number}")
        closing = os.fork()
        while not closing:
            for path, mode in (("a/b", 0), ("a", 0), ("a", 0o700), ("a/b", 0o700)):
                os.chmod(path, mode)
        found = [{one.path for one in Tree(".").find_triggers()} for _ in range(60)]
        os.kill(closing, 9)
        print(sum(not one & {"a", "a/b", "a/b/.git"} for one in found))
    """
    arguments = (sys.executable, "-S", "-c", script, str(disk_path))
    ran = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("0\n", "")
