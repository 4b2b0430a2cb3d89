"""Check whether the CPU of a turn is independent of the amount of stored data.

A model in this process answers at once.

    python -m bench.flat [--plot docs/pictures/flat.svg] [--json]

One home has conversations of 0 to 100,000 messages, with the last 200 of them in the window and
with none. Four others have 1 to 10,000 conversations in addition to the measured one. All take
turns within one process, so that each sees the same machine. Figures are medians."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from bench.common import Instant, gateway, median, write_session
from bench.reporting import report
from nanobot.testing.channel import FakeChannel

STORED, CHATS = (0, 1_000, 10_000, 30_000, 100_000), (1, 100, 1_000, 10_000)
WINDOW, TURNS, ROUNDS = 200, 20, 9


class Chat(NamedTuple):
    """A measured conversation, its series and its channel."""

    series: str
    size: int
    channel: FakeChannel
    name: str


async def cpu_of(chat: Chat) -> float:
    """Return the milliseconds of CPU per turn, over some turns."""
    begun = time.process_time()
    for _ in range(TURNS):
        await chat.channel.ask("What shall I cook tonight?", chat.name)
    return (time.process_time() - begun) / TURNS * 1000


async def settle() -> None:
    """Wait until the background work (indexing and archiving) is done."""
    used = -1.0
    while time.process_time() - used > 0.05:
        used = time.process_time()
        await asyncio.sleep(2)


def fill(folder: Path) -> list[tuple[Path, list[Chat]]]:
    """Create the homes, and return the measured chats of each."""
    channel, chats = FakeChannel(), list[Chat]()
    for series, window in (
        (f"{WINDOW} messages in the window", WINDOW),
        ("no message in the window", 0),
    ):
        for size in STORED:
            name = f"{window}-{size}"
            write_session(folder / "stored", f"fake:{name}", size, max(size - window, 0))
            chats.append(Chat(series, size, channel, name))
    homes = [(folder / "stored", chats)]
    for size in CHATS:
        home = folder / f"chats-{size}"
        for number in range(size):
            write_session(home, f"cli:chat-{number}", 4, 0)
        homes.append((home, [Chat("conversations", size, FakeChannel(), "1")]))
    return homes


async def measure(folder: Path) -> Mapping[str, Mapping[int, float]]:
    """Return the milliseconds of CPU per turn, by series and size."""
    homes = fill(folder)
    chats = [chat for _, some in homes for chat in some]
    async with AsyncExitStack() as stack:
        for home, some in homes:
            await stack.enter_async_context(gateway(home, Instant(), some[0].channel))
        for chat in chats:
            await cpu_of(chat)
        await settle()
        rounds = [[await cpu_of(chat) for chat in chats] for _ in range(ROUNDS)]
    found: dict[str, dict[int, float]] = {}
    for chat, values in zip(chats, zip(*rounds, strict=True), strict=True):
        found.setdefault(chat.series, {})[chat.size] = median(values)
    return found


PAGE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>Milliseconds of CPU per turn by what is stored</title>
<style>
text {{ font: 13px sans-serif; fill: #57606a }}
.grid {{ stroke: #57606a; stroke-opacity: 0.25 }}
.line {{ fill: none; stroke-width: 2.5 }}
.c0 {{ stroke: #0969da; fill: #0969da }} .c1 {{ stroke: #bc4c00; fill: #bc4c00 }}
text.c0, text.c1 {{ stroke: none }} .line.c0, .line.c1 {{ fill: none }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #b1bac4 }} .grid {{ stroke: #b1bac4 }}
.c0 {{ stroke: #58a6ff; fill: #58a6ff }} .c1 {{ stroke: #f0883e; fill: #f0883e }}
}}
</style>
{content}
</svg>
"""
PANEL, LEFT, TOP, DEEP = 400, 50, 40, 200
"""The width of a panel. The axes begin at `LEFT`, `TOP`, and are `DEEP` high."""


def picture(found: Mapping[str, Mapping[int, float]]) -> str:
    """Return an SVG: on the left stored messages, on the right conversations."""
    *stored, chats = found.items()
    top = 1.4 * max(value for points in found.values() for value in points.values())
    content = "\n".join(
        panel(at * PANEL, title, series, top)
        for at, (title, series) in enumerate(
            (
                ("messages stored in the conversation", stored),
                ("conversations in the home", [chats]),
            )
        )
    )
    return PAGE.format(width=2 * PANEL + 20, height=TOP + DEEP + 60, content=content)


def panel(
    left: int, title: str, series: Sequence[tuple[str, Mapping[int, float]]], top: float
) -> str:
    """Return one panel: lines of milliseconds, up to `top`, with equal steps between the sizes."""
    sizes = list(series[0][1])
    step = (PANEL - LEFT - 30) / (len(sizes) - 1)
    shapes = []
    for value in range(int(top) + 1):
        y = TOP + DEEP - value / top * DEEP
        shapes.append(f'<path class="grid" d="M{left + LEFT},{y:.1f}H{left + PANEL - 30}"/>')
        shapes.append(
            f'<text x="{left + LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value}</text>'
        )
    for at, size in enumerate(sizes):
        x = left + LEFT + at * step
        shapes.append(
            f'<text x="{x:.1f}" y="{TOP + DEEP + 20}" text-anchor="middle">{size:,}</text>'
        )
    middle = left + (LEFT + PANEL - 30) / 2
    shapes.append(f'<text x="{middle}" y="{TOP + DEEP + 44}" text-anchor="middle">{title}</text>')
    shapes.append(f'<text x="{left + 12}" y="{TOP - 18}">ms of CPU per turn</text>')
    for at, (name, points) in enumerate(series):
        spots = [
            (left + LEFT + number * step, TOP + DEEP - value / top * DEEP)
            for number, value in enumerate(points.values())
        ]
        d = "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        shapes.append(f'<path class="line c{at}" d="{d}"/>')
        shapes += [f'<circle class="c{at}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in spots]
        if len(series) > 1:
            y = TOP + 6 + 18 * at
            shapes.append(f'<text class="c{at}" x="{left + LEFT + 10}" y="{y}">{name}</text>')
    return "\n".join(shapes)


def main() -> None:
    parser = argparse.ArgumentParser(description="A turn's CPU with much and little stored.")
    parser.add_argument("--plot", type=Path, help="where an SVG picture of it goes")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measure(Path(folder)))
    figures: dict[str, object] = {}
    for series, points in found.items():
        for size, value in points.items():
            figures[f"{series}: {size:,} stored [ms]"] = value
        first, *rest = points.values()
        figures[f"{series}: the dearest against the first (target <= 1.2)"] = max(rest) / first
    report("flat", figures)
    if options.plot:
        options.plot.write_text(picture(found))


if __name__ == "__main__":
    main()
