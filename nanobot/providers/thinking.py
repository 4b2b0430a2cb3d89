"""Keeps a model's thinking out of what people read.

Some servers send the reasoning in fields of its own, which nobody here reads; others leave it in
the text, as `<think>…</think>` at the start. `VisibleText` takes the text in pieces of any size and
gives back what may be shown. The pieces it gives back always join to the same text, however the
input was cut, and that text can be encoded: halves of a surrogate pair that arrived in two pieces
are joined, stray ones replaced.
"""

from __future__ import annotations

_OPENING = ("<think>", "<thinking>")
_LONGEST_CLOSING = len("</thinking>")
_WHITESPACE = " \t\r\n"


class VisibleText:
    """The visible part of one reply."""

    def __init__(self) -> None:
        self._half = ""
        self._held = ""
        self._closing = ""
        self._at_start = True
        self._trim = False

    def feed(self, piece: str) -> str:
        """What `piece` lets be shown now."""
        piece = self._half + piece
        self._half = ""
        if piece and "\ud800" <= piece[-1] <= "\udbff":
            piece, self._half = piece[:-1], piece[-1]
        return self._show(mend_surrogates(piece))

    def close(self) -> str:
        """What was held back and turned out to be text."""
        shown = self._show(mend_surrogates(self._half))
        held = "" if self._closing else self._held
        self._half = self._held = ""
        return shown + (held.lstrip(_WHITESPACE) if self._trim else held)

    def _show(self, piece: str) -> str:
        if not self._at_start:
            return piece
        self._held += piece
        while self._skip_thinking() if self._closing else self._skip_tag():
            pass
        return self._release()

    def _release(self) -> str:
        """What is held, once it is known to be text."""
        if self._closing or self._at_start:
            return ""
        shown, self._held = self._held, ""
        return shown

    def _skip_tag(self) -> bool:
        """Look at how the text starts; True if it is with an opening tag, which is dropped."""
        text = self._held.lstrip(_WHITESPACE)
        low = text[: len(_OPENING[-1])].lower()
        for tag in _OPENING:
            if low.startswith(tag):
                self._held, self._closing = text[len(tag) :], f"</{tag[1:]}"
                return True
        if not text or any(tag.startswith(low) for tag in _OPENING):
            return False
        if self._trim:
            self._held = text
        self._at_start = False
        return False

    def _skip_thinking(self) -> bool:
        """Drop up to the closing tag; False while it has not come."""
        end = self._held.lower().find(self._closing)
        if end < 0:
            self._held = self._held[-_LONGEST_CLOSING:]
            return False
        self._held = self._held[end + len(self._closing) :]
        self._closing, self._trim = "", True
        return True


def mend_surrogates(text: str) -> str:
    """`text` with surrogate pairs joined and stray halves replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
