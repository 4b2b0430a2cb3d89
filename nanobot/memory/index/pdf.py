"""The text of a PDF, read by a process of its own.

A PDF comes from anywhere and its parser is a large program: so it runs in a child with limits on
memory, time and output and without this process's environment, and whatever happens there is one
`PdfUnreadable` here. The child is `pdf_worker`, which imports nothing of nanobot.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

_WORKER = Path(__file__).with_name("pdf_worker.py")


class PdfUnreadable(Exception):
    """This file cannot be read; `str(error)` says why."""


@dataclass(frozen=True, slots=True)
class PdfLimits:
    """`seconds` for one file, `megabytes` of memory; `characters` are counted over all pages."""

    pages: int = 3_000
    characters: int = 5_000_000
    seconds: float = 60.0
    megabytes: int = 1_024


def read_pages(content: bytes, limits: PdfLimits) -> list[tuple[int, str]]:
    """The pages that hold text, numbered from 1. Blocks. Raises `PdfUnreadable`."""
    with tempfile.TemporaryFile() as output:
        arguments = (limits.pages, limits.characters, int(limits.seconds) + 1, limits.megabytes)
        try:
            done = subprocess.run(  # noqa: S603 - our own interpreter and our own file
                [sys.executable, "-P", str(_WORKER), *map(str, arguments)],
                input=content,
                stdout=output,
                stderr=subprocess.DEVNULL,
                timeout=limits.seconds,
                # Where modules are, and nothing else: no key, no proxy, no home.
                env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "LC_ALL": "C.UTF-8"},
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise PdfUnreadable(f"reading took longer than {limits.seconds:g} seconds") from error
        except OSError as error:
            raise PdfUnreadable(f"no process to read it with: {error.strerror}") from error
        output.seek(0)
        return _parsed(output.read(), done.returncode)


def _parsed(answer: bytes, code: int) -> list[tuple[int, str]]:
    """What the child wrote: `{"pages": [[1, "text"], …]}` or `{"error": "why"}`."""
    try:
        value = json.loads(answer)
    except ValueError as error:
        raise PdfUnreadable(f"its parser ended with code {code}") from error
    if isinstance(value, dict) and isinstance(value.get("error"), str):
        raise PdfUnreadable(value["error"])
    pages = value.get("pages") if isinstance(value, dict) else None
    if not isinstance(pages, list):
        raise PdfUnreadable("its parser gave no pages")
    return [(int(number), str(text)) for number, text in pages]
