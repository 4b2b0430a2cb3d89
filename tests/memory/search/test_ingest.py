"""The index matches the files after any change of them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nanobot.memory.search import Query
from nanobot.memory.search.database import TURN
from nanobot.memory.search.index import MemoryIndex
from nanobot.memory.search.passages import SourceFile, lines_of
from nanobot.messages import Role
from nanobot.session.records import encode
from tests.memory.search.talk import START, Home, everything, find, id_of, message
from tests.scratch import scratch


async def test_what_was_just_said_is_found(home: Home, index: MemoryIndex) -> None:
    home.say("cli:direct", message(1, "one elephant"))
    assert await find(index, "elephant") == ["m:cli:direct:1"]
    home.say("cli:direct", message(2, "two elephants"))
    assert sorted(await find(index, "elephant")) == ["m:cli:direct:1", "m:cli:direct:2"]


async def test_a_line_that_is_still_being_written_waits(home: Home, index: MemoryIndex) -> None:
    home.say("cli:direct", message(1, "hello"))
    line = encode(message(2, "an elephant"))
    with home.file("cli:direct").open("a") as file:
        file.write(line[:20])
        file.flush()
        assert await find(index, "elephant") == []
        file.write(line[20:])
    assert await find(index, "elephant") == ["m:cli:direct:2"]


async def test_moving_to_the_archive_indexes_nothing_twice_and_loses_nothing(
    home: Home, index: MemoryIndex
) -> None:
    home.say("cli:direct", *(message(n, f"elephant number {n}") for n in range(1, 11)))
    before = sorted(await find(index, "elephant"))
    for up_to in (4, 4, 7, 10):
        home.archive("cli:direct", up_to)
        assert sorted(await find(index, "elephant")) == before
    home.say("cli:direct", message(11, "elephant number 11"))
    assert sorted(await find(index, "elephant")) == sorted([*before, "m:cli:direct:11"])
    assert (await index.stats()).messages == 11


async def test_lines_that_a_crash_left_in_both_places_count_once(
    home: Home, index: MemoryIndex
) -> None:
    home.say("cli:direct", *(message(n, f"elephant number {n}") for n in range(1, 5)))
    whole = home.file("cli:direct").read_bytes()
    home.archive("cli:direct", 3)
    home.file("cli:direct").write_bytes(whole)
    assert len(await find(index, "elephant")) == 4


@pytest.mark.parametrize("turn", ["t1", ""])
@pytest.mark.parametrize("known", [True, False])
async def test_retracted_messages_are_not_found(
    home: Home, index: MemoryIndex, turn: str, known: bool
) -> None:
    home.say(
        "cli:direct",
        message(1, "a grey elephant", turn="t0"),
        message(2, "a pink elephant", turn="t1"),
        message(3, "a pink elephant indeed", "assistant", turn="t1"),
    )
    if known:
        assert len(await find(index, "elephant")) == 3
    home.retract("cli:direct", turn, 2, 3)
    assert await find(index, "elephant") == ["m:cli:direct:1"]
    assert await index.around("m:cli:direct:2", ("owner",)) == []
    home.archive("cli:direct", 3)
    assert await find(index, "elephant") == ["m:cli:direct:1"]


async def test_a_retraction_spares_other_turns_in_its_range(home: Home, index: MemoryIndex) -> None:
    home.say("cli:direct", message(1, "an elephant", turn="a"), message(2, "an elephant", turn="b"))
    home.retract("cli:direct", "b", 1, 2)
    assert await find(index, "elephant") == ["m:cli:direct:1"]


async def test_a_retraction_holds_for_messages_written_after_it(
    home: Home, index: MemoryIndex
) -> None:
    home.say("cli:direct", message(1, "a grey elephant"), message(2, "a pink elephant"))
    home.retract("cli:direct", "", 2, 3)
    assert await find(index, "elephant") == ["m:cli:direct:1"]
    home.say("cli:direct", message(3, "a pink elephant indeed"), message(4, "an elephant"))
    expected = ["m:cli:direct:1", "m:cli:direct:4"]
    assert sorted(await find(index, "elephant")) == expected
    await index.rebuild()
    assert sorted(await find(index, "elephant")) == expected


async def test_what_was_retracted_is_not_found_at_once_and_gone_from_the_file_at_the_next_refresh(
    home: Home, index: MemoryIndex
) -> None:
    home.say("cli:direct", *(message(n, f"the tiger {n}") for n in range(1, 40)))
    home.say("cli:direct", message(40, "the code is qwertzuiop"))
    await index.refresh()
    home.retract("cli:direct", "", 40, 40)
    assert await find(index, "qwertzuiop") == []
    await index.refresh()
    assert b"qwertz" not in everything(home.database.parent).lower()


async def test_a_purge_that_is_owed_is_made_up_for_by_the_next_process(home: Home) -> None:
    index = home.index()
    home.say("cli:direct", *(message(n, f"the tiger {n}") for n in range(1, 40)))
    home.say("cli:direct", message(40, "the code is qwertzuiop"))
    await index.refresh()
    home.retract("cli:direct", "", 40, 40)
    assert await find(index, "qwertzuiop") == []
    await index.close()
    later = home.index()
    await later.refresh()
    assert b"qwertz" not in everything(home.database.parent).lower()
    await later.close()


async def test_erased_text_is_neither_found_nor_left_in_the_file(
    home: Home, index: MemoryIndex
) -> None:
    home.say("cli:direct", *(message(n, f"the tiger {n}") for n in range(1, 40)))
    home.say("cli:direct", message(40, "the code is qwertzuiop"))
    assert await find(index, "qwertzuiop") == ["m:cli:direct:40"]
    path = home.file("cli:direct")
    redacted = path.read_bytes().replace(b"qwertzuiop", b"[erased]")
    aside = path.with_name(".new")
    aside.write_bytes(redacted)
    aside.replace(path)
    assert await find(index, "qwertzuiop") == []
    assert await find(index, "erased") == ["m:cli:direct:40"]
    await index.refresh()
    left = everything(home.path)
    assert b"qwertzui" not in left.lower()


@pytest.mark.parametrize("same_inode", [True, False])
async def test_what_an_editor_changes_is_noticed(
    home: Home, index: MemoryIndex, same_inode: bool
) -> None:
    home.say("cli:direct", message(1, "a tiger"), message(2, "a zebra"), message(3, "a tiger"))
    assert len(await find(index, "tiger")) == 2
    path = home.file("cli:direct")
    edited = path.read_bytes().replace(b"a zebra", b"a horse")
    status = path.stat()
    if same_inode:
        path.write_bytes(edited)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))
    else:
        aside = path.with_name(".new")
        aside.write_bytes(edited)
        aside.replace(path)
    assert await find(index, "zebra") == []
    assert await find(index, "horse") == ["m:cli:direct:2"]


async def test_a_message_put_back_in_between_is_found(home: Home, index: MemoryIndex) -> None:
    home.say("cli:direct", message(1, "a tiger"), message(3, "a horse"))
    assert len(await find(index, "tiger horse")) == 2
    path = home.file("cli:direct")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], encode(message(2, "a zebra")), *lines[2:]]))
    assert await find(index, "zebra") == ["m:cli:direct:2"]
    assert [p.seq for p in await index.around("m:cli:direct:2", ("owner",))] == [1, 2, 3]


async def test_files_of_other_programs_are_read(home: Home, index: MemoryIndex) -> None:
    home.file("cli:direct").write_text(
        '{"role": "user", "content": "a tiger"}\n'
        '{"role": "assistant", "content": [{"type": "text", "text": "a striped one"}]}\n'
        "not json\n"
        '{"role": "user", "content": "yes", "timestamp": "2026-03-02T10:00:00"}\n'
    )
    assert (await find(index, "tiger"))[0] == "m:cli:direct:1"
    assert (await find(index, "striped"))[0] == "m:cli:direct:2"
    with home.file("cli:direct").open("a") as file:
        file.write('{"role": "user", "content": "a zebra"}\n')
    assert (await find(index, "zebra"))[0] == "m:cli:direct:4"


async def test_a_session_that_is_gone_is_no_longer_found(home: Home, index: MemoryIndex) -> None:
    home.say("cli:direct", message(1, "a tiger"))
    home.say("cli:other", message(1, "a tiger"))
    assert len(await find(index, "tiger")) == 2
    home.file("cli:other").unlink()
    assert await find(index, "tiger") == ["m:cli:direct:1"]


async def test_a_session_with_nothing_but_an_archive_is_found(
    home: Home, index: MemoryIndex
) -> None:
    home.say("cli:direct", message(1, "a tiger"), message(2, "a horse"))
    home.archive("cli:direct", 2)
    home.file("cli:direct").unlink()
    assert (await find(index, "tiger"))[0] == "m:cli:direct:1"


async def test_a_note_that_a_person_changed_is_read_anew(home: Home, index: MemoryIndex) -> None:
    note = home.memory / "2026-03-01.md"
    note.write_text("# 2026-03-01\n\n- 09:00 a tiger\n- 10:00 a horse\n")
    assert await find(index, "tiger") != []
    note.write_text("# 2026-03-01\n\n- 09:00 a zebra\n- 10:00 a horse\n")
    assert await find(index, "tiger") == []
    assert (await find(index, "zebra"))[0] == id_of("n:owner:2026-03-01", "- 09:00 a zebra")
    note.unlink()
    assert await find(index, "zebra") == []


async def test_every_line_of_a_note_that_a_person_wrote_is_found(
    home: Home, index: MemoryIndex
) -> None:
    note = home.memory / "2026-03-01.md"
    note.write_text(
        "# 2026-03-01\n\n## Plans for the boat\nPaint it\n#todo call Tom\n* buy\n  oil\n"
    )
    lines = ("## Plans for the boat", "Paint it", "#todo call Tom", "* buy", "  oil")
    for word, line in zip(("boat", "paint", "todo", "buy", "oil"), lines, strict=True):
        assert await find(index, word) == [id_of("n:owner:2026-03-01", line)]
    assert (await index.stats()).notes == 5


async def test_links_out_of_the_memory_folder_are_not_followed(
    home: Home, index: MemoryIndex
) -> None:
    secret = home.path / "secret.md"
    secret.write_text("a tiger")
    (home.memory / "2026-03-01.md").symlink_to(secret)
    assert await find(index, "tiger") == []


async def test_a_pause_ends_a_segment_and_many_messages_do(home: Home, index: MemoryIndex) -> None:
    home.say(
        "cli:direct", message(1, "hello"), message(2, "a tiger", day=1), message(3, "yes", day=1)
    )
    hit = (await index.search(Query("tiger", ("owner",)))).hits[0]
    assert [near.seq for near in (*hit.before, *hit.after)] == [3]


@pytest.mark.parametrize("behind", [timedelta(milliseconds=400), timedelta(minutes=2)])
async def test_a_platform_with_a_clock_of_its_own_tears_no_talk_apart(
    home: Home, index: MemoryIndex, behind: timedelta
) -> None:
    answer = replace(message(1, "yes", "assistant"), timestamp=START + behind)
    home.say("cli:direct", answer, replace(message(2, "a tiger"), timestamp=START))
    hit = (await index.search(Query("tiger", ("owner",)))).hits[0]
    assert [near.seq for near in hit.before] == [1]


async def test_ids_are_the_same_after_a_rebuild(home: Home, index: MemoryIndex) -> None:
    home.say(
        "cli:direct", message(1, "a tiger"), message(2, "a tiger", "tool"), message(3, "a tiger")
    )
    home.remember(4, "a tiger")
    (home.memory / "2026-03-01.md").write_text("# 2026-03-01\n\n- 09:00 a tiger\n")
    before = await find(index, "tiger")
    await index.rebuild()
    assert await find(index, "tiger") == before
    assert len(before) == 5


ROLES: dict[str, Role] = {"say": "user", "reply": "assistant", "output": "tool"}
KEPT = "SELECT DISTINCT seq FROM passage WHERE kept ORDER BY seq"
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [*ROLES, "retract", "archive", "edit", "note", "amend", "mark", "unmark"],
        ),
        st.integers(1, 12),
    ),
    max_size=12,
)


@settings(max_examples=20, deadline=None)
@given(STEPS)
async def test_step_by_step_it_becomes_what_a_rebuild_makes(steps: list[tuple[str, int]]) -> None:
    with scratch() as folder:
        await step_by_step(Home(folder), steps)


async def step_by_step(home: Home, steps: list[tuple[str, int]]) -> None:
    """Run any steps, and compare the index with a new one."""
    index = home.index()
    home.say("cli:direct", message(1, "tiger horse zebra"))
    note = home.memory / "2026-03-01.md"
    note.write_text("# 2026-03-01\n\n")
    last = 1
    for step, number in steps:
        match step:
            case "say" | "reply" | "output":
                text = " ".join(["tiger", "horse", "zebra", "東京都"][: 1 + number % 4])
                numbers = range(last + 1, last + 1 + (number // 12 * TURN or 1))
                home.say(
                    "cli:direct",
                    *(
                        message(n, text, ROLES[step], turn=f"t{n // 2}", day=number // 9)
                        for n in numbers
                    ),
                )
                last = numbers[-1]
            case "retract":
                home.retract("cli:direct", "", min(number, last), min(number, last) + 1)
            case "mark" | "unmark":
                home.mark("cli:direct", min(number, last), kept=step == "mark")
            case "archive":
                home.archive("cli:direct", min(number, last))
            case "edit":
                path = home.file("cli:direct")
                edited = path.read_bytes().replace(b"zebra", b"horse", 1)
                path.write_bytes(edited.replace(b'"mark":"keep"', b'"mark":"no"', 1) + b"\n")
            case "note":
                with note.open("a") as file:
                    file.write(f"- {8 + number}:00 a tiger or zebra\n")
            case "amend":
                note.write_text(note.read_text().replace("zebra", "horse", 1))
        await index.refresh()
    fresh = home.index(path=home.path / "fresh.db")
    for question in ("tiger", "horse", "zebra", "東京"):
        assert sorted(await find(index, question)) == sorted(await find(fresh, question))
    assert await index.stats() == await fresh.stats()
    await index.close()
    await fresh.close()
    with closing(sqlite3.connect(home.database)) as db:
        words = db.execute("SELECT rowid FROM words ORDER BY rowid").fetchall()
        assert words == db.execute("SELECT id FROM passage ORDER BY id").fetchall()
        kept = db.execute(KEPT).fetchall()
    with closing(sqlite3.connect(home.path / "fresh.db")) as db:
        assert kept == db.execute(KEPT).fetchall()


async def test_many_new_sessions_are_written_together(home: Home, index: MemoryIndex) -> None:
    for number in range(100):
        home.say(f"cli:{number}", message(1, f"tiger number {number}"))
    await index.refresh()
    with closing(sqlite3.connect(home.database)) as db:
        # The pages of the full-text table: a header and an average, and the rest in segments.
        (segments,) = db.execute("SELECT count(DISTINCT id >> 37) - 1 FROM words_data").fetchone()
    assert segments == 1


async def test_a_message_that_is_added_is_all_that_is_read(
    home: Home, index: MemoryIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.say("cli:direct", *(message(n, f"tiger number {n}") for n in range(1, 60)))
    home.archive("cli:direct", 40)
    home.retract("cli:direct", "", 30, 30)
    await index.refresh()
    read = list[bytes]()

    def count_lines(file: SourceFile, start: int = 0) -> Iterator[bytes]:
        for raw in lines_of(file, start):
            read.append(raw)
            yield raw

    monkeypatch.setattr("nanobot.memory.search.ingest.lines_of", count_lines)
    home.say("cli:direct", message(60, "a zebra"))
    assert await find(index, "zebra") == ["m:cli:direct:60"]
    assert set(read) == {encode(message(60, "a zebra")).encode()}
    home.retract("cli:direct", "", 59, 60)
    assert await find(index, "zebra") == []
    assert (await index.stats()).messages == 57


async def test_an_edit_is_noticed_though_lines_were_added_after_it(
    home: Home, index: MemoryIndex
) -> None:
    home.say("cli:direct", *(message(n, "a tiger" if n > 1 else "a zebra") for n in range(1, 90)))
    assert await find(index, "zebra") == ["m:cli:direct:1"]
    path = home.file("cli:direct")
    with path.open("r+b") as file:
        file.seek(path.read_bytes().index(b"zebra"))
        file.write(b"camel")
    home.say("cli:direct", message(90, "a horse"))
    assert await find(index, "zebra") == []
    assert await find(index, "camel") == ["m:cli:direct:1"]
    assert await find(index, "horse") == ["m:cli:direct:90"]


@pytest.mark.parametrize("archived", [0, 2])
@pytest.mark.parametrize("known", [True, False])
async def test_messages_out_of_their_order_are_found(
    home: Home, index: MemoryIndex, archived: int, known: bool
) -> None:
    """This occurs after a person merged two files of a session."""
    home.say("cli:direct", message(1, "a tiger"), message(2, "a tiger"), message(5, "a tiger"))
    if archived:
        home.archive("cli:direct", archived)
    if known:
        await index.refresh()
    home.say(
        "cli:direct", message(3, "a zebra"), message(5, "a camel"), message(2, "a yak", "tool")
    )
    for number in range(6, 9):
        home.say("cli:direct", message(number, "a horse"))
        assert await find(index, "zebra") == ["m:cli:direct:3"]
        assert await find(index, "camel") == ["m:cli:direct:5"]
        assert await find(index, "yak") == ["m:cli:direct:2"]
        assert len(await find(index, "tiger")) == 3
        assert len(await find(index, "horse")) == number - 5
    path = home.file("cli:direct")
    path.write_bytes(path.read_bytes().replace(b"a zebra", b"a whale"))
    assert await find(index, "zebra") == []
    assert await find(index, "whale") == ["m:cli:direct:3"]
    assert (await index.stats()).messages == 9
    home.archive("cli:direct", 7)
    assert (await index.stats()).messages == 9


async def test_a_message_that_is_marked_to_keep_is_so_wherever_it_stands(
    home: Home, index: MemoryIndex
) -> None:
    async def find_kept() -> list[int]:
        hits = (await index.search(Query("tiger", ("owner",), limit=50))).hits
        return sorted(hit.passage.seq for hit in hits if hit.passage.kept)

    home.say("cli:direct", *(message(n, f"a tiger {n}") for n in range(1, 9)))
    home.mark("cli:direct", 2)
    assert await find_kept() == [2]
    home.mark("cli:direct", 7)
    home.archive("cli:direct", 5)
    assert await find_kept() == [2, 7]
    home.mark("cli:direct", 3)
    home.mark("cli:direct", 2, kept=False)
    assert await find_kept() == [3, 7]
    await index.rebuild()
    assert await find_kept() == [3, 7]
    path = home.file("cli:direct")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if '"mark"' not in line))
    assert await find_kept() == []


async def test_a_line_with_the_number_of_an_archived_one_goes_when_it_is_deleted(
    home: Home, index: MemoryIndex
) -> None:
    home.say("cli:direct", *(message(n, f"elephant {n}") for n in range(1, 5)))
    home.archive("cli:direct", 4)
    await index.refresh()
    live = home.file("cli:direct")
    before = live.read_text()
    live.write_text(before + encode(message(4, "a zebra")))
    assert await find(index, "zebra") == ["m:cli:direct:4"]
    live.write_text(before)
    assert await find(index, "zebra") == []
