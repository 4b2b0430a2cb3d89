"""HistoryLog: the commit point of consolidation, its copy for people, and the effects of
crashes."""

from __future__ import annotations

import json
import resource
import threading
import tracemalloc
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loguru import logger
from msgspec.structs import replace

from nanobot.errors import NanobotError, StorageError
from nanobot.io import MOST_LINE
from nanobot.memory.history import (
    HistoryEntry,
    HistoryLog,
    adopt_foreign_lines,
    decode,
    decode_foreign,
    encode,
    entry_lines,
    paragraph_of,
)
from nanobot.memory.line_changes import Operation
from nanobot.security.paths import Root

if TYPE_CHECKING:
    from tests.memory.conftest import StoppedClock

WHEN = datetime(2026, 3, 10, 14, 23, tzinfo=timezone(timedelta(hours=1)))


def entry(summary: str = "[2026-03-10 14:23] Ana chose blue.", **fields: object) -> HistoryEntry:
    given_fields: dict[str, object] = {"type": "consolidation", "session": "telegram:1"}
    given_fields |= {"first": 120, "last": 161} | fields
    return HistoryEntry(0, WHEN, summary=summary, **given_fields)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "memory").mkdir()
    return tmp_path / "memory"


@pytest.fixture
def log(tmp_path: Path, clock: StoppedClock) -> HistoryLog:
    return HistoryLog(Root(tmp_path), clock)


def again(log_folder: Path, clock: StoppedClock) -> HistoryLog:
    return HistoryLog(Root(log_folder.parent), clock)


def test_a_line_that_is_too_long_is_skipped_with_one_warning_and_stays(
    folder: Path, clock: StoppedClock, request: pytest.FixtureRequest
) -> None:
    warnings: list[str] = []
    sink = logger.add(warnings.append, level="WARNING", format="{message}")
    request.addfinalizer(lambda: logger.remove(sink))
    again(folder, clock).append(entry("one"))
    path = folder / "history.jsonl"
    with path.open("ab") as file:
        file.write(b'{"cursor": 2, "summary": "')
        file.truncate(file.tell() + MOST_LINE)
    before = path.stat().st_size
    log = again(folder, clock)
    assert [one.summary for one in log.entries()] == ["one"]
    assert log.append(entry("two")).cursor == 3  # the number on the line is taken
    assert [one.summary for one in again(folder, clock).entries()] == ["one", "two"]
    assert path.stat().st_size > before
    assert list(folder.glob("*.corrupt-*")) == []
    assert len(set(warnings)) == 1


def test_an_entry_stands_in_the_file_as_documented(folder: Path, log: HistoryLog) -> None:
    stored = log.append(
        entry(
            key_facts=("Likes 蓝色",),
            operations=(Operation(new="- Likes blue", section="## Preferences"),),
            origin=("tool:web_fetch",),
        )
    )
    assert stored.cursor == 1
    assert (folder / "history.jsonl").read_text() == (
        '{"cursor": 1, "timestamp": "2026-03-10T14:23:00+01:00", "type": "consolidation", '
        '"session": "telegram:1", "range": [120, 161], '
        '"summary": "[2026-03-10 14:23] Ana chose blue.", "key_facts": ["Likes 蓝色"], '
        '"operations": [{"new": "- Likes blue", "section": "## Preferences"}], '
        '"origin": ["tool:web_fetch"]}\n'
    )
    assert log.entries() == [stored]
    assert (folder / ".cursor").read_text() == "1\n"


def test_people_get_a_paragraph_an_entry_each_with_its_time(folder: Path, log: HistoryLog) -> None:
    log.append(entry("[2026-03-10 09:00] First."))
    log.append(entry("Second,\n\nin two parts.\n"))
    assert (folder / "HISTORY.md").read_text() == (
        "[2026-03-10 09:00] First.\n\n[2026-03-10 14:23] Second,\nin two parts.\n\n"
    )


def test_what_is_read_where_nothing_exists_is_empty_and_makes_no_file(
    tmp_path: Path, clock: StoppedClock
) -> None:
    log = HistoryLog(Root(tmp_path), clock, prefix="people/telegram_7/")
    assert log.entries() == []
    assert (log.last_cursor(), log.newest(), log.dream_cursor()) == (0, {}, 0)
    assert log.get(1) is None
    log.recover()
    assert log.rewrite(str.upper) == 0
    assert list(tmp_path.iterdir()) == []
    log.append(entry())
    assert (tmp_path / "people/telegram_7/memory/history.jsonl").is_file()


def test_entries_are_found_by_cursor_and_by_session(log: HistoryLog) -> None:
    for first, last in ((1, 9), (10, 19)):
        log.append(entry(f"{first}", first=first, last=last))
    log.append(entry("other", session="cli:direct", first=1, last=3))
    assert [e.cursor for e in log.entries(after=1)] == [2, 3]
    assert log.newest()["telegram:1"].since(WHEN) == 19
    assert log.newest()["cli:direct"].since(WHEN) == 3
    assert log.newest()["cli:direct"].since(WHEN + timedelta(seconds=1)) == 0
    found = log.get(3)
    assert found is not None
    assert found.summary == "other"


def test_a_history_of_years_takes_little_memory(log: HistoryLog, folder: Path) -> None:
    number, text = 2_000, "It was a long conversation about the garden. " * 40
    lines = (encode(replace(entry(text), cursor=cursor + 1)) for cursor in range(number))
    (folder / "history.jsonl").write_bytes(b"".join(lines))
    tracemalloc.start()
    try:
        assert len(log.cursors()) == number
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 400 * number
    assert len(log.entries(after=number - 3)) == 3


def test_a_second_log_sees_what_the_first_wrote(
    folder: Path, log: HistoryLog, clock: StoppedClock
) -> None:
    stored = log.append(entry(operations=(Operation("a b", "a c", "## S", 3),)))
    reader = again(folder, clock)
    assert reader.entries() == [stored]
    more = log.append(entry("more"))
    assert reader.entries(after=1) == [more]


def test_a_torn_last_line_is_set_aside_and_its_entry_written_anew(
    folder: Path, log: HistoryLog, clock: StoppedClock
) -> None:
    log.append(entry("one"))
    file = folder / "history.jsonl"
    whole = file.read_bytes()
    for cut in (1, 20, len(whole) - 2):
        file.write_bytes(whole + whole[:cut])
        reader = again(folder, clock)
        assert [e.summary for e in reader.entries()] == ["one"]
        assert reader.append(entry("two")).cursor == 2
        assert [e.summary for e in again(folder, clock).entries()] == ["one", "two"]
        (folder / ".cursor").write_text("1")
        (folder / "HISTORY.md").write_text("[2026-03-10 14:23] one\n\n")
        clock.time += timedelta(seconds=1)
    assert len(list(folder.glob("history.jsonl.corrupt-20261121T14030*"))) == 3


def test_an_editor_may_leave_the_last_newline_out(
    folder: Path, log: HistoryLog, clock: StoppedClock
) -> None:
    log.append(entry("one"))
    file = folder / "history.jsonl"
    file.write_bytes(file.read_bytes().rstrip(b"\n"))
    other = again(folder, clock)
    assert [e.summary for e in other.entries()] == ["one"]
    other.append(entry("two"))
    assert [e.summary for e in again(folder, clock).entries()] == ["one", "two"]
    assert not list(folder.glob("*.corrupt-*"))


def test_an_editor_may_put_a_byte_order_mark_in_front(
    folder: Path, log: HistoryLog, clock: StoppedClock
) -> None:
    first, second = log.append(entry("one")), log.append(entry("two"))
    file = folder / "history.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    other = again(folder, clock)
    assert [found.cursor for found in other.entries()] == [first.cursor, second.cursor]
    assert [found.summary for found in again(folder, clock).entries()] == ["one", "two"]


def test_bad_lines_are_skipped_and_stay_and_their_cursors_are_not_reused(
    folder: Path, log: HistoryLog, clock: StoppedClock
) -> None:
    log.append(entry("one"))
    bad = b'{"cursor": 7, "timestamp": "yester\n\xff\xfe\n[1]\n{"cursor": true}\n{}\n'
    file = folder / "history.jsonl"
    file.write_bytes(file.read_bytes() + bad)
    (folder / ".cursor").unlink()
    other = again(folder, clock)
    assert [e.cursor for e in other.entries()] == [1]
    assert other.append(entry("two")).cursor == 8
    assert bad in file.read_bytes()


def test_a_cursor_is_not_given_again_after_its_line_was_deleted(
    folder: Path, log: HistoryLog, clock: StoppedClock
) -> None:
    log.append(entry("one"))
    log.append(entry("two"))
    file = folder / "history.jsonl"
    file.write_text(file.read_text().splitlines()[0] + "\n")
    assert again(folder, clock).append(entry("three")).cursor == 3
    file.unlink()
    (folder / "HISTORY.md").unlink()
    assert again(folder, clock).append(entry("four")).cursor == 4


def test_the_hint_may_be_wrong_or_gone(folder: Path, log: HistoryLog, clock: StoppedClock) -> None:
    log.append(entry("one"))
    for hint in ("0", "garbage", "-5", "9" * 40, ""):
        (folder / ".cursor").write_text(hint)
        other = again(folder, clock)
        expected = other.last_cursor() + 1
        assert other.append(entry("next")).cursor == expected
    assert [e.cursor for e in again(folder, clock).entries()] == [1, 2, 3, 4, 5, 6]
    assert (folder / "HISTORY.md").read_text().count("one") == 1


@pytest.mark.parametrize("written", [0, -2, -1, None])
def test_a_paragraph_that_a_crash_kept_back_is_added_exactly_once(
    folder: Path, log: HistoryLog, clock: StoppedClock, written: int | None
) -> None:
    log.append(entry("[2026-03-10 09:00] First."))
    before = (folder / "HISTORY.md").read_bytes()
    log.append(entry("Second, of some length, with an é."))
    full = (folder / "HISTORY.md").read_bytes()
    # The crash came after the line was synced: .cursor lags.
    (folder / "HISTORY.md").write_bytes(before + full[len(before) :][:written])
    (folder / ".cursor").write_text("1\n")
    for _ in range(2):
        again(folder, clock).recover()
        assert (folder / "HISTORY.md").read_bytes().rstrip(b"\n") == full.rstrip(b"\n")
    (folder / ".cursor").unlink()
    again(folder, clock).append(entry("Third."))
    assert (folder / "HISTORY.md").read_bytes() == full + b"[2026-03-10 14:23] Third.\n\n"


def test_what_a_person_took_out_of_the_readable_history_stays_out(
    folder: Path, log: HistoryLog, clock: StoppedClock
) -> None:
    log.append(entry("one"))
    log.append(entry("two"))
    (folder / "HISTORY.md").write_text("my own words")
    other = again(folder, clock)
    other.recover()
    assert (folder / "HISTORY.md").read_text() == "my own words"
    other.append(entry("three"))
    assert (folder / "HISTORY.md").read_text() == "my own words\n\n[2026-03-10 14:23] three\n\n"


def test_a_paragraph_that_another_one_contains_is_told_as_well(
    folder: Path, log: HistoryLog
) -> None:
    log.append(entry("[2026-03-10 14:23] Ana chose blue. Tom came."))
    log.append(entry("[2026-03-10 14:23] Ana chose blue."))
    assert (folder / "HISTORY.md").read_text() == (
        "[2026-03-10 14:23] Ana chose blue. Tom came.\n\n[2026-03-10 14:23] Ana chose blue.\n\n"
    )


def test_what_waits_is_known_where_the_mark_cannot_be_written(
    folder: Path, log: HistoryLog, clock: StoppedClock
) -> None:
    log.append(entry("old"))
    (folder / ".applied").unlink()
    (folder / ".applied").mkdir()
    log = again(folder, clock)
    new = log.append(entry("new"))
    assert log.load_unapplied() == [new]
    with pytest.raises(NanobotError):
        log.set_applied(new.cursor)
    assert log.load_unapplied() == []


def test_an_entry_is_committed_although_the_readable_history_cannot_be_written(
    folder: Path, log: HistoryLog
) -> None:
    log.append(entry("one"))
    text = (folder / "HISTORY.md").read_text()
    (folder / "HISTORY.md").unlink()
    (folder / "HISTORY.md").mkdir()
    assert log.append(entry("two")).cursor == 2
    (folder / "HISTORY.md").rmdir()
    (folder / "HISTORY.md").write_text(text)
    log.append(entry("three"))
    assert [line[19:] for line in (folder / "HISTORY.md").read_text().split("\n\n") if line] == [
        "one",
        "two",
        "three",
    ]


def test_a_full_disk_commits_nothing_and_leaves_no_half_line(
    folder: Path, log: HistoryLog, clock: StoppedClock
) -> None:
    log.append(entry("one"))
    before = (folder / "history.jsonl").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        with pytest.raises(StorageError):
            log.append(entry("x" * 300_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (folder / "history.jsonl").read_bytes() == before
    assert log.append(entry("two")).cursor == 2
    assert [e.summary for e in again(folder, clock).entries()] == ["one", "two"]


def test_taking_text_out_reaches_every_file_and_keeps_cursors(
    folder: Path, log: HistoryLog, clock: StoppedClock
) -> None:
    facts = {"key_facts": ("the secret",), "operations": (Operation(new="- secret line"),)}
    log.append(entry("a secret", **facts))
    log.append(entry("harmless"))
    log.append(entry("another secret"))
    (folder / "history.jsonl").write_bytes((folder / "history.jsonl").read_bytes() + b'{"secret')
    again(folder, clock).append(entry("later"))
    harmless = (folder / "history.jsonl").read_text().splitlines()[1]
    assert log.rewrite(lambda text: text.replace("secret", "[erased]")) == 3
    for file in folder.rglob("*"):
        assert file.is_dir() or b"secret" not in file.read_bytes()
    assert (folder / "history.jsonl").read_text().splitlines()[1] == harmless
    assert [e.cursor for e in log.entries()] == [1, 2, 3, 4]
    assert log.entries()[0].key_facts == ("the [erased]",)
    assert log.rewrite(lambda text: text.replace("secret", "[erased]")) == 0


def test_taking_out_what_looks_like_a_part_of_every_entry_breaks_none(log: HistoryLog) -> None:
    stored = log.append(entry("raw 2026 consolidation"))
    assert log.rewrite(lambda text: text.replace("consolidation", "x").replace("2026", "x")) == 2
    assert log.entries() == [replace(stored, summary="raw x x")]


def test_half_an_emoji_survives(folder: Path, log: HistoryLog, clock: StoppedClock) -> None:
    stored = log.append(entry("cut \ud83d here", session="x:\udcff"))
    assert b"\\ud83d" in (folder / "history.jsonl").read_bytes()
    assert again(folder, clock).entries() == [stored]
    assert "cut" in (folder / "HISTORY.md").read_text()


def test_an_editor_that_replaces_the_file_loses_no_entry(
    folder: Path, log: HistoryLog, clock: StoppedClock
) -> None:
    log.append(entry("one"))
    file = folder / "history.jsonl"
    copy = file.with_name("copy")
    copy.write_bytes(file.read_bytes().replace(b"one", b"ONE"))
    copy.replace(file)
    log.append(entry("two"))
    assert [e.summary for e in log.entries()] == ["ONE", "two"]


def test_many_threads_append_each_with_its_own_cursor(folder: Path, log: HistoryLog) -> None:
    threads = [
        threading.Thread(target=lambda: [log.append(entry("x")) for _ in range(5)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [e.cursor for e in log.entries()] == list(range(1, 21))
    assert len((folder / "history.jsonl").read_text().splitlines()) == 20


def test_a_link_is_never_followed(folder: Path, log: HistoryLog, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (folder / "history.jsonl").symlink_to(outside)
    with pytest.raises(NanobotError):
        log.append(entry("x"))
    assert outside.read_text() == "mine"


def test_a_foreign_line_is_read_as_far_as_it_makes_sense() -> None:
    line = {"cursor": 3, "timestamp": "2026-03-10T14:23:00", "type": "raw", "summary": "s"}
    found = decode(json.dumps(line | {"range": "x", "more": "x"}).encode(), UTC)
    assert found == HistoryEntry(3, datetime(2026, 3, 10, 14, 23, tzinfo=UTC), "raw", "", 0, 0, "s")
    wrong = {"cursor": 0}, {"cursor": 10**16}, {"type": "?"}, {"timestamp": "x"}
    for changed in wrong:
        assert decode(json.dumps(line | changed).encode(), UTC) is None


HKUDS = [
    {"timestamp": "2026-04-19T10:00:00", "type": "consolidation", "summary": "用户种了番茄",
     "key_facts": ["番茄在阳台上"]},
    {"cursor": 1, "timestamp": "2026-04-02 10:00", "content": "[2026-04-02 10:00] A job for rain."},
    {"cursor": 2, "timestamp": "2026-04-03 09:12", "content": "[RAW] 1 messages\n[…] USER: a kayak",
     "session_key": "telegram:7"},
]  # fmt: skip


def test_lines_of_hkuds_become_entries_that_are_read_and_kept(
    folder: Path, clock: StoppedClock
) -> None:
    given_lines = [json.dumps(line, ensure_ascii=False).encode() for line in HKUDS]
    ours, broken = encode(replace(entry("ours"), cursor=7)), b'{"cursor": 3, "content": ""}\n'
    (folder / "history.jsonl").write_bytes(b"\n".join(given_lines) + b"\n" + broken + ours)
    (folder / ".dream_cursor").write_text("1\n")
    for _ in range(2):
        log = again(folder, clock)
        log.recover()
        found = log.entries()
        assert [(e.cursor, e.type, e.session) for e in found] == [
            (1, "import", ""), (2, "import", "telegram:7"), (7, "consolidation", "telegram:1"),
            (8, "import", ""),
        ]  # fmt: skip
        assert found[1].summary.endswith("USER: a kayak")
        assert (found[3].summary, found[3].key_facts) == ("用户种了番茄", ("番茄在阳台上",))
        assert [f"{e.timestamp:%m-%d %H:%M}" for e in found[:2]] == ["04-02 10:00", "04-03 09:12"]
        assert log.cursors(log.dream_cursor()) == [2, 7, 8]
    assert broken in (folder / "history.jsonl").read_bytes()
    assert log.append(entry("new")).cursor == 9


foreign_values = st.none() | st.integers(-1, 4) | st.text() | st.lists(st.text(), max_size=2)
foreign_keys = ("cursor", "timestamp", "content", "summary", "key_facts", "session_key", "type")


@given(st.lists(st.dictionaries(st.sampled_from(foreign_keys), foreign_values), max_size=5))
def test_whatever_foreign_lines_hold_each_text_becomes_one_entry(lines: list[object]) -> None:
    content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    texts = [e.summary for line in content.splitlines() if (e := decode_foreign(line, WHEN))]
    found = [decode(line, UTC) for line in adopt_foreign_lines(content, {2}, 4, WHEN).splitlines()]
    entries = [e for e in found if e is not None]
    assert [e.summary for e in entries if e.type == "import"] == texts
    assert len({e.cursor for e in entries} | {2}) == len(entries) + 1


@given(st.text(), st.text(), st.lists(st.text(min_size=1), max_size=3))
def test_any_entry_comes_back_from_its_line(summary: str, session: str, facts: list[str]) -> None:
    given_entry = HistoryEntry(5, WHEN, "raw", session, 1, 2, summary, tuple(facts))
    line = encode(given_entry)
    assert line.count(b"\n") == 1
    assert decode(line, UTC) == given_entry
    assert "\n\n" not in paragraph_of(given_entry)


@given(st.binary(max_size=300))
def test_no_line_makes_reading_fail(line: bytes) -> None:
    decode(line, UTC)


WRAPPED = """{"timestamp": "2026-04-19T11:00:00", "type": "consolidation",
  "summary": "Asked about Skills, decided
    to write a custom one",
  "key_facts": [
    "Tech stack: Python"
  ]
}
{"cursor": 1, "timestamp": "2026-04-02 10:00",
 "content": "[2026-04-02 10:00] The user set up a cron job."}
{"cursor": 7, "timestamp": "2026-04-02T10:00:00", "type": "consolidation", "session": "cli:direct",
"range": [1, 2], "summary": "Ours, but in lines"}
{"cursor": 9, "torn
{"cursor": 8, "timestamp": "2026-04-03 09:12", "content": "Without
an end"}"""


@pytest.mark.parametrize("ending", ["", "\n"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_entries_that_are_wrapped_over_several_lines_are_read(
    folder: Path, log: HistoryLog, clock: StoppedClock, ending: str, newline: str
) -> None:
    content = (WRAPPED + ending).replace("\n", newline)
    (folder / "history.jsonl").write_bytes(content.encode())
    log.recover()
    texts = {one.cursor: one.summary for one in log.entries()}
    assert sorted(texts.values()) == [
        "Asked about Skills, decided to write a custom one",
        "Ours, but in lines",
        "Without an end",
        "[2026-04-02 10:00] The user set up a cron job.",
    ]
    assert (texts[1], texts[7]) == (
        "[2026-04-02 10:00] The user set up a cron job.",
        "Ours, but in lines",
    )
    assert b'{"cursor": 9, "torn' in (folder / "history.jsonl").read_bytes()
    log.append(entry())
    assert len(again(folder, clock).entries()) == 5
    assert [one.name for one in folder.iterdir() if "corrupt" in one.name] == []


def test_a_last_line_of_another_program_needs_no_newline(folder: Path, log: HistoryLog) -> None:
    (folder / "history.jsonl").write_text('{"timestamp": "2026-04-02 10:00", "content": "Bread."}')
    log.append(entry())
    assert [one.summary for one in log.entries()] == ["Bread.", entry().summary]


def test_lines_that_only_look_like_a_wrapped_entry_cost_no_time(folder: Path) -> None:
    content = b'{"a": [\n' + b"  {},}\n" * 20_000 + encode(replace(entry(), cursor=3))
    begun = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    lines = list(entry_lines(content))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - begun < 5
    assert len(lines) == 20_002
