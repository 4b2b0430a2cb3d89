"""A guest's command leaves no name with a dot."""

from __future__ import annotations

from nanobot.security.sandbox import Sandbox
from tests.security.sandbox.folders import SandboxFolders

MADE = (
    "mkdir -p .venv/bin a/.cache/.x node_modules/.bin b; : > .gitattributes; : > a/.coverage; : >"
    " b/.x"
)


async def test_no_name_with_a_dot_stays_where_a_guests_command_ran(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    work = folders.workspace / "work"
    ended = await folders.run(sandbox, f"cd work && {MADE} && echo kept > b/notes.txt", strict=True)
    assert ended.code == 0, ended
    assert [path.name for path in work.rglob("*") if path.name.startswith(".")] == []
    assert (work / "b/notes.txt").read_text() == "kept\n"
    assert (work / "dot-venv/bin").is_dir()


async def test_a_guests_command_that_makes_what_runs_by_itself_is_ended(
    sandbox: Sandbox, folders: SandboxFolders
) -> None:
    work = folders.workspace / "work"
    for made in (".envrc", "CLAUDE.md", "tasks.code-workspace", "bare/HEAD"):
        command = f"cd work && mkdir -p bare/objects bare/refs; echo x > {made}; sleep 60"
        ended = await folders.run(sandbox, command, strict=True)
        assert ended.code != 0, made
        assert not (work / made).exists(), made
