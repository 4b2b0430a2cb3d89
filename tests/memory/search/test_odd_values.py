"""Malformed names and values hide nothing else from search."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nanobot.memory.search import Query
from nanobot.memory.search.index import MemoryIndex
from nanobot.session.records import JsonValue
from tests.memory.search.talk import START, Home, find, id_of, message

HALF = "A\ud83d"
"""A name that a program cut in the middle of an emoji."""

LATIN = os.fsdecode(b"caf\xe9")
"""A name on disk that is not UTF-8."""

HUGE = 10**20
MESSAGE: dict[str, JsonValue] = {
    "role": "user",
    "content": "a tiger",
    "timestamp": START.isoformat(),
    "seq": 7,
}
ENTRY: dict[str, JsonValue] = {
    "cursor": 3,
    "timestamp": START.isoformat(),
    "type": "raw",
    "summary": "a tiger",
}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.say("cli:direct", message(1, "one elephant"))
    return made


@pytest.mark.parametrize(
    "line",
    [
        MESSAGE | {"name": HALF},
        MESSAGE | {"origin": HALF},
        MESSAGE | {"turn_id": HALF},
        MESSAGE | {"content": f"a tiger {HALF}"},
        MESSAGE | {"seq": HUGE},
    ],
)
async def test_a_message_with_an_odd_value_is_found_as_any_other(
    home: Home, index: MemoryIndex, line: dict[str, JsonValue]
) -> None:
    with home.file("cli:direct").open("a") as file:
        file.write(json.dumps(line) + "\n")
    assert await find(index, "elephant") == ["m:cli:direct:1"]
    assert len(await find(index, "tiger")) == 1


@pytest.mark.parametrize(
    "line",
    [
        {"_type": "retract", "turn_id": "", "first": 1, "last": HUGE},
        {"_type": "retract", "turn_id": HALF, "first": 1, "last": 2},
        {"_type": "metadata", "key": f"cli:{HALF}", "first_seq": HUGE},
    ],
)
async def test_an_odd_record_hides_no_other_session(
    home: Home, index: MemoryIndex, line: dict[str, JsonValue]
) -> None:
    home.file("cli:odd").write_text(json.dumps(line) + "\n" + json.dumps(MESSAGE) + "\n")
    assert await find(index, "elephant") == ["m:cli:direct:1"]


@pytest.mark.parametrize("odd", [{"session": HALF}, {"origin": [HALF]}, {"range": [1, HUGE]}])
async def test_an_entry_with_an_odd_value_is_found_as_any_other(
    home: Home, index: MemoryIndex, odd: dict[str, JsonValue]
) -> None:
    (home.memory / "history.jsonl").write_text(json.dumps(ENTRY | odd) + "\n")
    assert await find(index, "tiger") == ["h:owner:3"]


@pytest.mark.parametrize("name", ["2026-02-31.md", "2026-13-01.md", "0000-00-00.md"])
async def test_a_file_named_by_a_day_that_never_was_is_no_note(
    home: Home, index: MemoryIndex, name: str
) -> None:
    (home.memory / name).write_text("- 09:00 a tiger\n")
    assert not (await index.search(Query("tiger", ("owner",), source="note"))).hits


async def test_a_document_whose_name_is_not_utf8_is_found(home: Home, index: MemoryIndex) -> None:
    (home.library / LATIN).mkdir(parents=True)
    (home.library / f"{LATIN}.md").write_text("a tiger")
    (home.library / LATIN / "a.md").write_text("a tiger")
    assert await find(index, "tiger") == [
        id_of(f"l:caf\\udce9{name}.md", "a tiger") for name in ("", "/a")
    ]
    (home.library / f"{LATIN}.md").unlink()
    assert await find(index, "tiger") == [id_of("l:caf\\udce9/a.md", "a tiger")]


async def test_a_session_whose_name_is_not_utf8_is_found(home: Home, index: MemoryIndex) -> None:
    (home.sessions / f"cli_{LATIN}.jsonl").write_text(json.dumps(MESSAGE) + "\n")
    archive = home.sessions / "archive" / f"cli_{LATIN}2"
    archive.mkdir(parents=True)
    (archive / "1.jsonl").write_text(json.dumps(MESSAGE) + "\n")
    found = await find(index, "tiger")
    assert set(found) == {"m:cli:caf\\udce9:7", "m:cli:caf\\udce92:7"}


async def test_a_stream_that_the_index_does_not_take_is_one_warning_and_hides_no_other(
    home: Home, index: MemoryIndex, warnings: list[str]
) -> None:
    folder = home.path / "workspace" / "people" / "odd" / "memory"
    folder.mkdir(parents=True)
    (folder / "history.jsonl").write_text(json.dumps(ENTRY) + "\n")
    home.people[f"people/{HALF}"] = folder
    for _ in range(2):
        assert await find(index, "elephant") == ["m:cli:direct:1"]
    assert len(warnings) == 1
    assert "is not searched" in warnings[0]


async def test_a_byte_order_mark_hides_nothing(home: Home, index: MemoryIndex) -> None:
    mark = b"\xef\xbb\xbf"
    home.say("telegram:-5", message(1, "a tiger"), metadata={"sender": "7"})
    home.remember(1, "They spoke of a tiger.")
    note = home.memory / "2026-03-01.md"
    noted = "- 09:00 (from tool:web_fetch, unconfirmed) a tiger"
    note.write_text(f"{noted}\n")
    for path in (note, home.memory / "history.jsonl", home.file("telegram:-5")):
        path.write_bytes(mark + path.read_bytes())
    assert sorted(await find(index, "tiger")) == ["h:owner:1", id_of("n:owner:2026-03-01", noted)]
    assert await find(index, "tiger", "people/telegram_7") == ["m:telegram:-5:1"]
    (passage,) = await index.around(id_of("n:owner:2026-03-01", noted), ("owner",))
    assert passage.origin == "note"


@pytest.mark.parametrize("number", ["9" * 20, "9" * 5_000, "٣", HALF])
async def test_an_id_with_an_odd_number_names_nothing(index: MemoryIndex, number: str) -> None:
    assert await index.around(f"m:cli:direct:{number}", ("owner",)) == []
