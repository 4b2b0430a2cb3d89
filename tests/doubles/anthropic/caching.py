"""Claude's prompt cache as its documentation describes it, with about four bytes a token.

Source of each rule: https://platform.claude.com/docs/en/build-with-claude/prompt-caching

- The prompt is tools, then system, then messages; an entry holds everything up to a breakpoint.
- Entries are only written at breakpoints, and not for fewer tokens than the model's minimum.
- A breakpoint looks for an entry at its own block and up to 19 blocks before it, 20 in all.
- Tools and system have their own entries; `tool_choice` and `thinking` count for messages only.
- An entry lives five minutes after it was last used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from nanobot.providers.fields import items, mapping
from tests.doubles.anthropic.rules import blocks_of

_LOOKBACK = 20
_SECONDS = 300.0
_BYTES_PER_TOKEN = 4

Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Counted:
    """Input tokens as in the API: `read` from the cache, `written` to it, and the rest."""

    uncached: int
    read: int
    written: int

    @property
    def total(self) -> int:
        """All tokens of the prompt."""
        return self.uncached + self.read + self.written

    def usage(self, output: int) -> dict[str, int]:
        """Return the `usage` object."""
        return {
            "input_tokens": self.uncached,
            "cache_read_input_tokens": self.read,
            "cache_creation_input_tokens": self.written,
            "output_tokens": output,
        }


class PromptCache:
    """The entries of one workspace."""

    def __init__(self, minimum: int, clock: Callable[[], float] = lambda: 0.0) -> None:
        self._minimum, self._clock = minimum, clock
        self._entries: dict[str, float] = {}

    def count(self, body: Json) -> Counted:
        """Count a request, and store the prefixes up to its breakpoints."""
        now = self._clock()
        self._entries = {key: end for key, end in self._entries.items() if end > now}
        chain, tokens = b"", 0
        prefixes: list[tuple[str, int]] = []
        marks: list[int] = []
        for block, size, marked in _blocks(body):
            chain = hashlib.sha256(chain + block).digest()
            tokens += size
            if marked:
                marks.append(len(prefixes))
            prefixes.append((chain.hex(), tokens))
        read = 0
        for mark in marks:
            for key, size_so_far in reversed(prefixes[max(0, mark - _LOOKBACK + 1) : mark + 1]):
                if key in self._entries:
                    self._entries[key] = now + _SECONDS
                    read = max(read, size_so_far)
                    break
        kept = 0
        for mark in marks:
            key, size_so_far = prefixes[mark]
            if size_so_far >= self._minimum:
                self._entries[key] = now + _SECONDS
                kept = max(kept, size_so_far)
        written = max(0, kept - read)
        return Counted(tokens - read - written, read, written)


def _blocks(body: Json) -> Iterator[tuple[bytes, int, bool]]:
    """Yield the identity of each block of the prompt, its tokens, and whether it has a
    breakpoint."""
    model = str(body.get("model")).encode()
    for tool in items(body.get("tools")):
        yield _block(b"tool" + model, mapping(tool))
    system = body.get("system") or []
    for block in [{"type": "text", "text": system}] if isinstance(system, str) else items(system):
        yield _block(b"system" + model, mapping(block))
    mode = json.dumps([body.get("tool_choice"), body.get("thinking")]).encode()
    for message in items(body.get("messages")):
        role = str(mapping(message).get("role")).encode()
        for block in blocks_of(mapping(message)):
            yield _block(role + mode, block)


def _block(context: bytes, block: Json) -> tuple[bytes, int, bool]:
    plain = {name: value for name, value in block.items() if name != "cache_control"}
    text = json.dumps(plain, sort_keys=True).encode()
    return context + text, len(text) // _BYTES_PER_TOKEN + 1, bool(block.get("cache_control"))
