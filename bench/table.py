"""The figures and targets of all benchmarks as one table in Markdown.

Each bench prints lines of JSON: `{"bench": name, label: value, …}`. The target of a figure is in
its label, as `(target <= 2)` or `(target 0)`. For benches whose labels are names it is in `WANTED`.
Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

WANTED: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "sessions": {
        "save_ratio": ("saving a turn with 100,000 messages stored, against none", "<= 1.2"),
        "save_loop_ratio": ("the same on the event loop alone", ""),
        "open_ratio": ("opening 100,000 messages, the last 1,000 in use, against those", "<= 1.5"),
    },
    "search": {
        "growth": ("a search among ten times as many messages", "<= 5"),
        "refresh_ratio": ("looking for what is new, against indexing it all", "<= 0.01"),
        "note_ratio": ("a search after a note, against one without", "<= 2"),
        "search_p50_ms": ("a search among 50,000 messages, median CPU [ms]", "<= 8"),
        "search_p95_ms": ("the same, the slowest of twenty [ms]", ""),
        "one_message_added_ms": ("looking for what is new after one message [ms]", ""),
        "search_after_note_ms": ("a search after a note [ms]", ""),
        "first_indexing_s": ("indexing 200,000 messages [s]", "<= 15"),
        "refresh_unchanged_ms": ("looking for what is new when nothing is [ms]", ""),
        "index_megabytes": ("the index of these [MB]", ""),
    },
    "crossings": {"crossings": ("attacks that crossed a line", "0")},
}
"""By bench and name: the label in the table, and the target."""


class Row(NamedTuple):
    """A row of the first table. `figure` and `over` are the beginnings of a bench's labels. With
    `over`, their ratio is shown."""

    label: str
    goal: str
    bench: str
    figure: str
    over: str = ""


_START, _LIST = "gateway, CPU of its start [s], ", "`sessions list`, CPU [s], "
ROWS = (
    Row("by Telegram, CPU relative to a turn", "<= 2.5", "doors", "Telegram: CPU [turns]"),
    Row("the same with a pause after each", "", "doors", "Telegram with a pause: CPU [turns]"),
    Row("by a linked WhatsApp", "", "doors", "WhatsApp, linked: CPU [turns]"),
    Row("by WhatsApp's Cloud API", "", "doors", "WhatsApp, Cloud API: CPU [turns]"),
    Row("to the API", "<= 1.6", "doors", "API: CPU [turns]"),
    Row("the same, commits", "<= 2.1", "doors", "API: commits"),
    Row("on the page", "", "doors", "page: CPU [turns]"),
    Row("in the terminal", "", "doors", "terminal: CPU [turns]"),
    Row("CPU of a turn, relative to two commits", "<= 4", "turns", "a turn, against two commits"),
    Row("a turn in a new chat, relative to an old one", "<= 1.3", "turns", "a turn in a new chat"),
    Row("a turn over HTTP, relative to the minimum", "<= 2.2", "http", "ratio"),
    Row("50 chats at 0 ms [turns/s]", "against: >= 2.5 x", "turns", "50 chats at 0 ms"),
    Row("saving with 100,000 messages [ms]", "against: <= 1 x", "sessions", "save_long_ms"),
    Row("opening 100,000 in the window [ms]", "<= 350", "sessions", "open_unconsolidated_ms"),
    Row("searching 50,000 messages [ms]", "against: <= 0.9 x", "search", "search_p50_ms"),
    Row("gateway ready [s]", "<= 0.22", "startup", "gateway ready"),
    Row("`nanobot --help` [s]", "<= 0.07", "startup", "nanobot --help"),
    Row("10,000 chats: start, to empty", "<= 1.2", "chats", f"{_START}10,000", f"{_START}empty"),
    Row("the same: `sessions list`", "<= 1.3", "chats", f"{_LIST}10,000", f"{_LIST}empty"),
    Row(
        "the same: the very first start [s]",
        "<= 2",
        "chats",
        "gateway, CPU of its very first start [s], 10,000",
    ),
    Row("system prompt and tools [tokens]", "<= 2,300", "prompt_size", "system prompt and tools"),
    Row("30 turns [tokens]", "<= 120,000", "prompt", "prompt tokens in all"),
    Row("of which uncached", "<= 6,000", "prompt", "of which uncached"),
    Row("packages of an install", "<= 46", "install", "nanobot, packages"),
    Row("its HTTP clients", "two", "install", "HTTP clients"),
    Row("first view of the page, in gzip [kB]", "<= 80", "web", "first view [kB]"),
)
"""The cost of a message. Goals that begin with `against` are relative to 3120a9f, and
`bench.against` measures them."""

_TARGET = re.compile(r"\s*\(target ([^)]*)\)")
_BOUND = re.compile(r"(<=|>=)?\s*([\d.,]+)")
_MOST_FAULTS = 5


@dataclass(frozen=True, slots=True)
class Figure:
    """One row. `met`: the target is met, or None without a target."""

    label: str
    value: str
    wanted: str = ""
    met: bool | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a bench: its figures, and the reason of a failure (or "")."""

    command: str
    seconds: float
    results: tuple[Mapping[str, object], ...]
    failure: str = ""


def figures(result: Mapping[str, object]) -> Iterator[Figure]:
    """Yield the rows of one line of a bench."""
    names = WANTED.get(str(result.get("bench")), {})
    for key, value in result.items():
        if key == "bench" or isinstance(value, dict | list):
            continue
        target = _TARGET.search(key)
        label, wanted = names.get(key, (_TARGET.sub("", key), target[1] if target else ""))
        yield Figure(label, _render(value), wanted.strip(), _met(value, wanted))


def markdown(heading: str, outcomes: Sequence[Outcome]) -> str:
    """Return the cost of a message, and a section for each bench."""
    sections = (line for one in outcomes for line in _section(one))
    return "\n".join([f"# {heading}", "", *costs(outcomes), *sections])


def costs(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """Yield the first table: the cost of a message, as far as it was measured."""
    found = {str(one.get("bench")): one for outcome in outcomes for one in outcome.results}
    rows = [(row, _value(row, found[row.bench])) for row in ROWS if row.bench in found]
    if rows:
        yield from ("## The cost of a message", "", "| what | measured | wanted |", "|---|---|---|")
        for row, value in rows:
            yield _row(Figure(row.label, _render(value), row.goal, _met(value, row.goal)))
        yield ""


def _section(outcome: Outcome) -> Iterator[str]:
    yield f"## `{outcome.command}`"
    yield ""
    if outcome.failure:
        yield f"**It failed**: {outcome.failure}"
        yield ""
    titled = len(outcome.results) > 1
    rows = [row for result in outcome.results for row in _rows(result, titled)]
    if rows:
        yield from ("| what | measured | wanted |", "|---|---|---|", *rows, "")
    elif not outcome.failure:
        yield from ("Nothing was measured.", "")
    faults = [fault for result in outcome.results for fault in _faults(result)]
    yield from (f"- {fault}" for fault in faults[:_MOST_FAULTS])
    if len(faults) > _MOST_FAULTS:
        yield f"- and {len(faults) - _MOST_FAULTS} more"
    yield f"It took {outcome.seconds:.0f} s."
    yield ""


def _value(row: Row, result: Mapping[str, object]) -> object:
    """Return the value of a row from its bench's result."""

    def find(begin: str) -> object:
        return next((value for label, value in result.items() if label.startswith(begin)), "-")

    value, over = find(row.figure), find(row.over) if row.over else 1
    if row.over and isinstance(value, float) and isinstance(over, float):
        return value / over
    return value


def _rows(result: Mapping[str, object], titled: bool) -> Iterator[str]:
    title = f"{result['bench']}: ".partition(": ")[2] if titled else ""
    for one in figures(result):
        yield _row(replace(one, label=title + one.label))


def _row(one: Figure) -> str:
    missed = " **missed**" if one.met is False else ""
    return f"| {_cell(one.label)} | {_cell(one.value)}{missed} | {_cell(one.wanted)} |"


def _faults(result: Mapping[str, object]) -> Iterator[str]:
    """Yield the sentences of the lists that a bench printed."""
    for value in result.values():
        if isinstance(value, list):
            yield from (_cell(str(one)) for one in value)


def _render(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _met(value: object, wanted: str) -> bool | None:
    """Check whether a value meets its target. The first number of a text such as `+0.2 ± 0.1`
    counts."""
    bound = _BOUND.match(wanted.strip())
    number = re.match(r"[+-]?[\d.]+", str(value))
    if bound is None or number is None:
        return None
    found, limit = float(number[0]), float(bound[2].replace(",", ""))
    if bound[1] == "<=":
        return found <= limit
    return found >= limit if bound[1] == ">=" else found == limit
