"""Plots as shapes for a template: stacked bars, and lines, with an axis. Series differ by pattern
or marks, not only by colour.

Lengths are in the units of the drawing, which is `WIDTH` × `HEIGHT`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

WIDTH, HEIGHT = 960, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 8, 72, 28, 34
_TICKS = 4
_MOST_LABELS = 10
_MARKS = ("solid", "stripes", "dots")
_SCALES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


class Series(Struct, frozen=True):
    """The bars or line of one kind: a value for each label, or None."""

    name: str
    values: Sequence[float | None]


class Shape(Struct, frozen=True):
    """A part of a bar, or a mark of a line with `x` and `y` in its middle."""

    x: float
    y: float
    width: float
    height: float
    mark: str


class Column(Struct, frozen=True):
    """All shapes above one label. `x` and `width` cover its whole place, `title` describes it in
    words."""

    x: float
    width: float
    title: str
    shapes: Sequence[Shape]


class Label(Struct, frozen=True):
    """A text of an axis at `at`."""

    at: float
    text: str


class Plot(Struct, frozen=True):
    """A plot for a template. `legend` has a mark and a name for each series, `paths` its line.
    `base` is the position of the axis of labels."""

    unit: str
    ticks: Sequence[Label]
    labels: Sequence[Label]
    columns: Sequence[Column]
    legend: Sequence[tuple[str, str]]
    paths: Sequence[tuple[str, str]] = ()
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    base: int = HEIGHT - _BOTTOM
    top: int = _TOP


def bars(labels: Sequence[str], series: Sequence[Series], unit: str) -> Plot:
    """Return stacked bars, with later series on top."""
    sums = [sum(one.values[at] or 0 for one in series) for at in range(len(labels))]
    top, ticks = _axis(max(sums, default=0))
    place, columns = _place(labels), list[Column]()
    for at, label in enumerate(labels):
        shapes, low = list[Shape](), 0.0
        for number, one in enumerate(series):
            value = one.values[at] or 0
            if value > 0:
                y = _y(low + value, top)
                height = round(_y(low, top) - y, 2)
                inner = max(1.0, round(place * 0.8, 2))
                x = round(_LEFT + at * place + (place - inner) / 2, 2)
                shapes.append(Shape(x, y, inner, height, _MARKS[number]))
                low += value
        columns.append(_column(at, place, label, series, unit, shapes))
    return Plot(unit, ticks, _labels(labels, place), columns, _legend(series))


def lines(labels: Sequence[str], series: Sequence[Series], unit: str) -> Plot:
    """Return lines with a mark at each value. They break at missing values."""
    known = [value for one in series for value in one.values if value is not None]
    top, ticks = _axis(max(known, default=0))
    place = _place(labels)
    columns = [
        _column(
            at,
            place,
            label,
            series,
            unit,
            [
                Shape(round(_LEFT + (at + 0.5) * place, 2), _y(value, top), 8, 8, _MARKS[number])
                for number, one in enumerate(series)
                if (value := one.values[at]) is not None
            ],
        )
        for at, label in enumerate(labels)
    ]
    paths = [(_MARKS[number], _path(one, place, top)) for number, one in enumerate(series)]
    return Plot(unit, ticks, _labels(labels, place), columns, _legend(series), paths)


def number(value: float) -> str:
    """Format a number for an axis: `1.2 M`."""
    for scale, name in _SCALES:
        if abs(value) >= scale:
            return f"{value / scale:.3g} {name}"
    return f"{value:.3g}"


def _axis(most: float) -> tuple[float, list[Label]]:
    """Return the value at the top, and the labels of round values below it."""
    if most <= 0:
        most = 1
    raw = most / _TICKS
    size = 10 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw * 0.999)
    count = math.ceil(most / step - 1e-9)
    return step * count, [
        Label(_y(step * at, step * count), number(step * at)) for at in range(count + 1)
    ]


def _y(value: float, top: float) -> float:
    return round(HEIGHT - _BOTTOM - value / top * (HEIGHT - _BOTTOM - _TOP), 2)


def _place(labels: Sequence[str]) -> float:
    return (WIDTH - _LEFT - _RIGHT) / max(1, len(labels))


def _labels(labels: Sequence[str], place: float) -> list[Label]:
    every = math.ceil(len(labels) / _MOST_LABELS)
    return [
        Label(round(_LEFT + (at + 0.5) * place, 2), text)
        for at, text in enumerate(labels)
        if (len(labels) - 1 - at) % every == 0  # the last one is today
    ]


def _column(
    at: int,
    place: float,
    label: str,
    series: Sequence[Series],
    unit: str,
    shapes: Sequence[Shape],
) -> Column:
    told = (f"{one.name} {one.values[at]:,.6g}" for one in series if one.values[at] is not None)
    title = f"{label}: {', '.join(told) or 'none'} {unit}"
    return Column(round(_LEFT + at * place, 2), round(place, 2), title, shapes)


def _legend(series: Sequence[Series]) -> list[tuple[str, str]]:
    return [(_MARKS[number], one.name) for number, one in enumerate(series)]


def _path(one: Series, place: float, top: float) -> str:
    parts, is_open = list[str](), False
    for at, value in enumerate(one.values):
        if value is not None:
            x = round(_LEFT + (at + 0.5) * place, 2)
            parts.append(f"{'L' if is_open else 'M'}{x} {_y(value, top)}")
        is_open = value is not None
    return "".join(parts)
