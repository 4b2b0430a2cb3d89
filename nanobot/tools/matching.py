"""The process that matches lines against a regular expression; see `nanobot.tools.search`.

It runs as a script, without the rest of nanobot: a JSON request, then for each file a JSON header
and its content on standard input; one JSON answer on standard output.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

SECONDS = 10

_MAX_LINE_SHOWN = 300


class Request(NamedTuple):
    """What to look for; `most` bounds the matching lines that are shown, not those counted."""

    pattern: str
    ignore_case: bool
    context: int
    most: int


class Source(NamedTuple):
    """A file to search."""

    name: str
    content: bytes


class Answer(NamedTuple):
    """Lines to show (`path:line: text`, around them `path-line- text`), and how many match."""

    lines: tuple[str, ...]
    shown: int
    matched: int
    files: int


def _sources(stream: BinaryIO) -> Iterator[Source]:
    while header := stream.readline():
        name, size = json.loads(header)
        yield Source(name, stream.read(size))


def find(request: Request, sources: Iterator[Source]) -> Answer:
    """Match every line of every source."""
    search = re.compile(request.pattern, re.IGNORECASE if request.ignore_case else 0).search
    shown: list[str] = []
    matched = files = shown_matches = 0
    for source in sources:
        lines = source.content.decode("utf-8", "replace").split("\n")
        if not lines[-1]:
            lines.pop()
        hits = [index for index, line in enumerate(lines) if search(line.removesuffix("\r"))]
        files += bool(hits)
        matched += len(hits)
        chosen = hits[: request.most - shown_matches]
        shown_matches += len(chosen)
        shown += _around(source.name, lines, chosen, request.context)
    return Answer(tuple(shown), shown_matches, matched, files)


def _around(name: str, lines: list[str], hits: list[int], context: int) -> Iterator[str]:
    previous, matching = -1, set(hits)
    for hit in hits:
        first = max(previous + 1, hit - context)
        if context and previous >= 0 and first > previous + 1:
            yield "--"
        for index in range(first, min(len(lines), hit + context + 1)):
            mark = ":" if index in matching else "-"
            yield f"{name}{mark}{index + 1}{mark} {_shortened(lines[index])}"
            previous = index


def _shortened(line: str) -> str:
    line = line.removesuffix("\r")
    return line if len(line) <= _MAX_LINE_SHOWN else f"{line[:_MAX_LINE_SHOWN]} [cut]"


def main() -> None:
    """The process: its limits end it even when the daemon is gone."""
    resource.setrlimit(resource.RLIMIT_CPU, (2 * SECONDS, 2 * SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    request = Request(*json.loads(sys.stdin.buffer.readline()))
    json.dump(find(request, _sources(sys.stdin.buffer)), sys.stdout)


if __name__ == "__main__":
    main()
