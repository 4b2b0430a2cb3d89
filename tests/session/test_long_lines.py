"""A line that is too long for any message loses its content, and no other line does."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from nanobot.io import MOST_LINE
from nanobot.session.manager import SessionManager
from nanobot.testing import FakeClock
from tests.session.support import Open, files_in, put, say, texts, user
from tests.session.test_damage import KEY, number_lines

pytestmark = pytest.mark.process

TOO_LONG = MOST_LINE + 4_000_000


def with_a_long_line(*, ended: bool = True) -> bytes:
    lines = number_lines(user("one"), user("two"))
    return b"".join(lines) + b'{"role":"user","content":"' + b"x" * TOO_LONG + b"\n" * ended


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*.jsonl"))


@pytest.mark.parametrize("ended", [True, False])
async def test_a_line_that_is_too_long_is_skipped_with_one_warning_and_stays(
    managed: Open, folder: Path, warnings: list[str], ended: bool
) -> None:
    before = with_a_long_line(ended=ended)
    path = put(folder, before)
    assert texts((await say(managed(), KEY, "next")).messages) == ["one", "two", "next"]
    assert len(warnings) == 1
    with path.open("rb") as file:
        assert file.read(len(before)) == before
    assert files_in(folder) == [path]
    assert texts((await managed().get_or_create(KEY)).messages) == ["one", "two", "next"]


async def test_archiving_moves_a_line_that_is_too_long_as_it_is(
    folder: Path, clock: FakeClock
) -> None:
    put(folder, with_a_long_line())
    manager = SessionManager(folder, clock, live_limit=0)
    session = await say(manager, KEY, "next")
    await manager.mark_consolidated(session, session.next_seq - 1)
    await manager.archive(session)
    await manager.close()
    assert everything_in(folder).count(b"x" * TOO_LONG) == 1


async def test_a_conversation_with_a_line_of_400_mb_opens_in_bounded_memory(
    managed: Open, folder: Path
) -> None:
    path = put(
        folder, b"".join(number_lines(user("one"), user("two"))) + b'{"role":"user","content":"'
    )
    with path.open("ab") as file:  # a sparse file takes no room on the disk
        file.truncate(path.stat().st_size + 400_000_000)
    tracemalloc.start()
    try:
        manager = managed()
        assert len((await manager.get_or_create(KEY)).messages) == 2
        assert len(list(manager.list_sessions())) == 1
        assert tracemalloc.get_traced_memory()[1] < 4 * MOST_LINE
    finally:
        tracemalloc.stop()
