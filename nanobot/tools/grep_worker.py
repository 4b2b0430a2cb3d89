"""Worker process of `grep` (see `read_tools`), which matches lines against a regular expression.

It runs as a script, without the rest of nanobot. Standard input: a JSON request, then for each file
a JSON header and its content. Standard output: one JSON answer. Annotations are not texts here,
which `NamedTuple` would compile."""

import json
import re
import sys
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

_MAX_LINE_SHOWN = 300


class MatchRequest(NamedTuple):
    """The search. `most` limits the matching lines that are shown, but not the count."""

    pattern: str
    ignore_case: bool
    context: int
    most: int


class MatchAnswer(NamedTuple):
    """Lines to show (`path:line: text`, context as `path-line- text`), and the counts."""

    lines: list[str]
    shown: int
    matched: int
    files: int


def read_sources(stream: BinaryIO) -> Iterator[tuple[str, bytes]]:
    while header := stream.readline():
        name, size = json.loads(header)
        yield name, stream.read(size)


def find(request: MatchRequest, sources: Iterator[tuple[str, bytes]]) -> MatchAnswer:
    """Match every line of every source (name and content)."""
    search = re.compile(request.pattern, re.IGNORECASE if request.ignore_case else 0).search
    shown: list[str] = []
    matched = files = shown_matches = 0
    for name, content in sources:
        lines = content.decode("utf-8", "replace").split("\n")
        if not lines[-1]:
            lines.pop()  # the empty text after the last newline
        hits = [index for index, line in enumerate(lines) if search(line.removesuffix("\r"))]
        files += bool(hits)
        matched += len(hits)
        chosen = hits[: request.most - shown_matches]
        shown_matches += len(chosen)
        shown += add_context(name, lines, chosen, request.context)
    return MatchAnswer(shown, shown_matches, matched, files)


def add_context(name: str, lines: list[str], hits: list[int], context: int) -> Iterator[str]:
    previous, matching = -1, set(hits)
    for hit in hits:
        first = max(previous + 1, hit - context)
        if context and previous >= 0 and first > previous + 1:
            yield "--"
        for index in range(first, min(len(lines), hit + context + 1)):
            mark, line = ":" if index in matching else "-", lines[index].removesuffix("\r")
            cut = line if len(line) <= _MAX_LINE_SHOWN else f"{line[:_MAX_LINE_SHOWN]} [cut]"
            yield f"{name}{mark}{index + 1}{mark} {cut}"
            previous = index


if __name__ == "__main__":
    wanted = MatchRequest(*json.loads(sys.stdin.buffer.readline()))
    json.dump(find(wanted, read_sources(sys.stdin.buffer)), sys.stdout)
