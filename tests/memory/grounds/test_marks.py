"""Marks of foreign text stay small, however often it is passed on."""

from __future__ import annotations

from nanobot.memory.grounds.grounds import Grounds, origins_of
from nanobot.memory.grounds.marks import OTHERS, carried, passed_on
from nanobot.messages import Message
from nanobot.testing.clock import DEFAULT_START


def message(role: str, text: str, origin: str) -> Message:
    return Message(role, text, DEFAULT_START, origin=origin)  # type: ignore[arg-type]


def test_a_mark_names_each_source_once_whatever_it_came_through() -> None:
    first = passed_on("helper:1", ["tool:grep", "person:7"])
    second = passed_on("helper:2", [first, "tool:grep", "note"])
    assert first == "helper:1 (person:7; tool:grep)"
    assert second == "helper:2 (note; person:7; tool:grep)"


def test_marks_do_not_grow_with_the_number_of_helpers() -> None:
    said = ""
    for number in range(200):
        marks = origins_of([message("assistant", "so it is", said)])
        report = passed_on(f"helper:{number}", [*marks, "tool:grep", f"person:{number % 3}"])
        said = carried([*marks, report, "tool:grep"])
    assert len(said) < 2_000


def test_a_mark_of_an_earlier_version_that_grew_is_made_small() -> None:
    mark = "helper:0 (tool:grep; person:7)"
    for number in range(1, 12):
        mark = f"helper:{number} ({mark}; {mark}; note)"
    assert carried([mark]) == "helper:11 (note; person:7; tool:grep)"


def test_where_there_were_too_many_sources_what_was_said_counts_as_foreign() -> None:
    sources = [f"person:{number:03}" for number in range(40)]
    asked = [message("user", f"it is {source}", source) for source in sources]
    few, many = carried(sources[:9]), carried(sources)
    assert many.endswith(f",{OTHERS}")
    assert Grounds.of([*asked, message("assistant", "juniper", few)]) == Grounds.of(asked)
    assert Grounds.of([*asked, message("assistant", "juniper", many)]) != Grounds.of(asked)
