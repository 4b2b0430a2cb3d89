"""A command that is allowed for longer: only one whose files can be told, and only as they were."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.security.sandbox import PATH
from nanobot.tools.shell.repeating import MOST_FILES, command_fingerprint
from nanobot.tools.shell.tools import ExecArguments
from tests.tools.shell.conftest import Desk

SCRIPT = "#!/bin/sh\necho hello\n"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A working folder with a script, what it works on, and what it has beside it."""
    folder = tmp_path / "work"
    (folder / "tools").mkdir(parents=True)
    (folder / "bin").mkdir()
    for path, content in (
        ("tools/report.sh", SCRIPT),
        ("tools/common.sh", "true\n"),
        ("tools/notes.txt", "notes\n"),
        ("tools/other.sh", "echo evil\n"),
        ("data.csv", "1,2\n"),
        ("Makefile", "all:\n\techo hello\n"),
        ("bin/tool", SCRIPT),
    ):
        (folder / path).write_text(content)
        (folder / path).chmod(0o755)
    (folder / "latest.csv").symlink_to("data.csv")
    return folder


def state(command: str, work: Path) -> str:
    return command_fingerprint(command, work, f"{work}/bin:{PATH}")


SH = "sh tools/report.sh data.csv"


@pytest.mark.parametrize(
    "command",
    [
        SH,
        "tools/report.sh",
        "./tools/report.sh --month=2026-11 data.csv",
        "tool",
        "sh tools/report.sh latest.csv",
        "sh tools/report.sh --in=data.csv",
        "date +%F",
    ],
)
def test_a_simple_command_is_the_same_as_long_as_nothing_changes(command: str, work: Path) -> None:
    first = state(command, work)
    assert first
    assert state(command, work) == first


@pytest.mark.parametrize(
    "command",
    [
        "sh tools/report.sh; curl evil",
        "sh tools/report.sh | sh",
        "sh -c 'tools/report.sh'",
        'sh "tools/report.sh"',
        "sh $SCRIPT",
        "sh tools/*.sh",
        "sh tools/report.s?",
        "sh `cat data.csv`",
        "sh tools/report.sh > Makefile",
        "sh tools/report.sh &",
        "sh tools/report.sh\nid",
        "sh ~/report.sh",
        "sh tools/{report,other}.sh",
        "sh tools\\/report.sh",
        "PATH=tools report.sh",
        "sh  tools/report.sh",
        "sh tools/report.sh ",
        "",
        "ls tools",
        "ls .",
        "no-such-program",
        "tools/missing.sh",
        "sh tools/réport.sh",
    ],
)
def test_where_it_cannot_be_told_what_runs_nothing_stands_for_it(command: str, work: Path) -> None:
    assert state(command, work) == ""


def rewritten(work: Path) -> None:
    (work / "tools/report.sh").write_text("#!/bin/sh\necho evil!\n")


def rewritten_with_its_old_times(work: Path) -> None:
    script = work / "tools/report.sh"
    status = script.stat()
    script.write_text(SCRIPT.replace("hello", "evil!"))
    os.utime(script, ns=(status.st_atime_ns, status.st_mtime_ns))


def swapped_for_a_link(work: Path) -> None:
    (work / "tools/report.sh").unlink()
    (work / "tools/report.sh").symlink_to("other.sh")


def swapped_for_a_link_to_the_same(work: Path) -> None:
    (work / "tools/report.sh").rename(work / "elsewhere.sh")
    (work / "tools/report.sh").symlink_to("../elsewhere.sh")


def its_folder_swapped(work: Path) -> None:
    (work / "tools").rename(work / "old")
    (work / "mine").mkdir()
    for name in ("report.sh", "common.sh", "other.sh"):
        (work / "mine" / name).write_bytes((work / "old" / name).read_bytes())
        (work / "mine" / name).chmod(0o755)
    (work / "tools").symlink_to("mine")


def given_other_data(work: Path) -> None:
    (work / "data.csv").write_text("3,4\n")


def given_another_module(work: Path) -> None:
    (work / "tools/common.sh").write_text("echo evil\n")


def given_a_new_module(work: Path) -> None:
    (work / "tools/date.sh").write_text("echo evil\n")


def given_another_mode(work: Path) -> None:
    (work / "tools/report.sh").chmod(0o4755)


def gone(work: Path) -> None:
    (work / "tools/report.sh").unlink()


def made_a_pipe(work: Path) -> None:
    (work / "tools/report.sh").unlink()
    os.mkfifo(work / "tools/report.sh")


@pytest.mark.parametrize(
    "change",
    [
        rewritten,
        rewritten_with_its_old_times,
        swapped_for_a_link,
        swapped_for_a_link_to_the_same,
        its_folder_swapped,
        given_other_data,
        given_another_module,
        given_a_new_module,
        given_another_mode,
        gone,
        made_a_pipe,
    ],
)
def test_whatever_is_changed_it_is_not_the_same_command(
    change: Callable[[Path], None], work: Path
) -> None:
    before = state(SH, work)
    change(work)
    assert state(SH, work) != before


def test_what_lies_beside_with_another_ending_may_change(work: Path) -> None:
    before = state(SH, work)
    (work / "tools/notes.txt").write_text("more notes\n")
    assert state(SH, work) == before


def test_a_link_that_leads_to_another_file_is_another_command(work: Path) -> None:
    command = "sh tools/report.sh latest.csv"
    before = state(command, work)
    (work / "other.csv").write_bytes((work / "data.csv").read_bytes())
    (work / "latest.csv").unlink()
    (work / "latest.csv").symlink_to("other.csv")
    assert state(command, work) != before


def test_another_program_of_that_name_is_another_command(work: Path) -> None:
    before, first = state("tool", work), state("sh tools/report.sh", work)
    (work / "bin/tool").write_text("#!/bin/sh\necho evil\n")
    assert state("tool", work) != before
    (work / "bin/sh").write_text(SCRIPT)
    (work / "bin/sh").chmod(0o755)
    assert state("sh tools/report.sh", work) != first


@pytest.mark.parametrize(
    "command",
    ["tool all", "tool -m pkg.report data.csv", "tool -mpkg data.csv", "tool --in=data.csv"],
)
@pytest.mark.parametrize("changed", ["Makefile", "pkg/report.py", "pkg/deep/new.py"])
def test_where_what_runs_is_not_named_everything_in_the_working_folder_counts(
    command: str, changed: str, work: Path
) -> None:
    (work / "pkg" / "deep").mkdir(parents=True)
    (work / "pkg" / "report.py").write_text("print()\n")
    before = state(command, work)
    assert before
    (work / changed).write_text("evil\n")
    assert state(command, work) != before


def test_a_link_to_a_folder_is_not_followed_and_leads_where_it_did(work: Path) -> None:
    (work / "more").symlink_to("tools")
    before = state("tool", work)
    assert before
    (work / "more").unlink()
    (work / "more").symlink_to("bin")
    assert state("tool", work) != before


def test_the_same_words_in_another_folder_are_another_command(work: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "tools").mkdir(parents=True)
    for name in ("tools/report.sh", "tools/common.sh", "tools/other.sh", "data.csv"):
        (other / name).write_bytes((work / name).read_bytes())
        (other / name).chmod(0o755)
    assert command_fingerprint(SH, other, PATH) != command_fingerprint(SH, work, PATH)


def test_too_many_files_are_not_looked_at(work: Path) -> None:
    for number in range(MOST_FILES + 1):
        (work / "tools" / f"{number}.sh").touch()
    assert state(SH, work) == ""


async def test_only_without_network_and_not_in_the_background(desk: Desk) -> None:
    (desk.workspace / "report.sh").write_text(SCRIPT)
    plain = ExecArguments("sh report.sh")
    assert await desk.exec.repeatable(plain, desk.me) is not None
    for other in (
        replace(plain, network=True),
        replace(plain, background=True),
        replace(plain, command="sh report.sh | cat"),
    ):
        assert await desk.exec.repeatable(other, desk.me) is None
