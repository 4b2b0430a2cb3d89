"""Measure cutting and rendering 200,000 characters of Markdown for Telegram, hostile or not.

Each text is rendered whole, then cut into messages that fit, and each of these is rendered. The
growth is relative to a sixteenth of the text: 16 is linear."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from bench.reporting import report
from nanobot.bus.split import split_text
from nanobot_telegram.markdown import TEXT_LIMIT, fits, render

LENGTH = 200_000
TEXTS = {
    "prose": "The **quick** brown `fox` jumps over [the dog](https://a.example/b), a plain one.\n",
    "bullets": "- item with **bold** and `code` in it\n",
    "words": "The quick brown fox jumps over the lazy dog. ",
    "brackets": "[",
    "images": "![",
    "links cut short": "[a](b ",
    "backticks": "`a ``b ",
    "stars": "*a",
    "bold": "**a** ",
    "some bold": "**bold** and a word ",
    "mixed emphasis": "***a** b_ ~~",
    "angles": "<",
    "tags cut short": "<a b='",
    "ampersands": "&amp;",
    "quotes": ">>>>a\n",
    "nested lists": "- - - 1. a\n",
    "lines": "a\n",
    "rules": "---\n",
    "definitions": "[a]: b\n",
    "notes": "a[^a]\n[^a]: b\n",
    "hidden": "||a ",
    "struck out": "~a ~~b ",
    "table rows": "|a|b|\n",
    "tables": "|a|b|\n|-|-|\n|c|d|\n\n",
    "fences": "```\na\n~~~\n",
    "emoji": "😀",
}


def seconds(work: Callable[[], object]) -> float:
    """Return the processor time of the best of two runs."""
    return min(_once(work), _once(work))


def _once(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def send(text: str) -> int:
    """Do all steps of sending a text, and return the number of messages."""
    return len([render(part) for part in split_text(text, TEXT_LIMIT, fits)])


def text_of(unit: str, length: int) -> str:
    """Return `length` characters of a repeated unit."""
    return (unit * (length // len(unit) + 1))[:length]


def main() -> None:
    for name, unit in TEXTS.items():
        whole, part = text_of(unit, LENGTH), text_of(unit, LENGTH // 16)
        rendering, sending = seconds(partial(render, whole)), seconds(partial(send, whole))
        growth = sending / max(seconds(partial(send, part)), 1e-4)
        report(
            f"markdown: {name}",
            {"render, s": rendering, "cut and render, s": sending, "growth for 16": growth},
        )


if __name__ == "__main__":
    main()
