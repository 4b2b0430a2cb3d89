"""The figures and targets of all benchmarks as one table in Markdown.

Each bench prints lines of JSON: `{"bench": name, label: value, …}`. The target of a figure is in
its label, as `(target <= 2)` or `(target 0)`. For benches whose labels are names it is in `WANTED`.
Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

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
        "search_p50_ms": ("a search among 50,000 messages, median [ms]", "<= 15"),
        "search_p95_ms": ("the same, the slowest of twenty [ms]", ""),
        "one_message_added_ms": ("looking for what is new after one message [ms]", ""),
        "search_after_note_ms": ("a search after a note [ms]", ""),
        "first_indexing_s": ("indexing 200,000 messages [s]", "<= 10"),
        "refresh_unchanged_ms": ("looking for what is new when nothing is [ms]", ""),
        "index_megabytes": ("the index of these [MB]", ""),
    },
    "crossings": {"crossings": ("attacks that crossed a line", "0")},
}
"""By bench and name: the label in the table, and the target."""

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


def markdown(heading: str, outcomes: Iterable[Outcome]) -> str:
    """Return the whole table, with a section for each bench."""
    return "\n".join([f"# {heading}", "", *(line for one in outcomes for line in _section(one))])


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


def _rows(result: Mapping[str, object], titled: bool) -> Iterator[str]:
    title = f"{result['bench']}: ".partition(": ")[2] if titled else ""
    for one in figures(result):
        missed = " **missed**" if one.met is False else ""
        yield f"| {_cell(title + one.label)} | {_cell(one.value)}{missed} | {_cell(one.wanted)} |"


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
