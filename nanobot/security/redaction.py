"""Secrets never reach logs, prompts or sessions: known values and known key shapes are replaced.

Redaction is the last net, not the boundary: secrets are kept out of tool environments in the first
place. Every pattern starts where the text before it cannot prolong the match, so that the time
taken is linear in the text.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loguru import Record

REDACTED = "[redacted]"

_MIN_SECRET = 6
"""Shorter values would turn ordinary text into gaps."""

# A pattern is only tried where its marker occurs, which costs a search for a literal.
_SHAPES = tuple(
    (marker, re.compile(rf"(?<![\w-])(?:{pattern})"))
    for marker, pattern in (
        ("sk-", r"sk-(?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9_-]{16,}"),  # OpenAI, Anthropic and kin
        ("AKIA", r"AKIA[A-Z0-9]{16}(?!\w)"),  # AWS
        ("ASIA", r"ASIA[A-Z0-9]{16}(?!\w)"),
        ("gh", r"gh[pousr]_[A-Za-z0-9]{36,}"),  # GitHub
        ("github_pat_", r"github_pat_[A-Za-z0-9_]{22,}"),
        ("AIza", r"AIza[A-Za-z0-9_-]{35}"),  # Google
        ("xox", r"xox[abeprs]-[A-Za-z0-9-]{10,}"),  # Slack
    )
)
_TELEGRAM_END = re.compile(r":[A-Za-z0-9_-]{35}(?![\w-])")
_TELEGRAM = re.compile(rf"(?<![0-9])[0-9]{{8,10}}{_TELEGRAM_END.pattern}")
_LABELS = tuple(
    (marker, re.compile(rf"({label})[A-Za-z0-9._~+/-]{{16,}}=*", re.IGNORECASE))
    for marker, label in (
        ("bearer", r"(?<!\w)bearer[ \t]{1,4}(?=[A-Za-z._~+/-]{0,64}[0-9])"),
        (
            "aws_secret",
            r"(?<!\w)aws_secret_access_key[\"']?[ \t]{0,4}[=:][ \t]{0,4}[\"']?",
        ),
    )
)


class Redactor:
    """Replaces the secrets it was given, and whatever looks like a well-known key."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # The longest first: a secret may contain another one.
        self._secrets = sorted(
            {secret for secret in secrets if len(secret) >= _MIN_SECRET}, key=len, reverse=True
        )

    def redact(self, text: str) -> str:
        """`text` without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        for marker, shape in _SHAPES:
            if marker in text:
                text = shape.sub(REDACTED, text)
        if _TELEGRAM_END.search(text):
            text = _TELEGRAM.sub(REDACTED, text)
        lower = text.lower()
        for marker, shape in _LABELS:
            if marker in lower:
                text = shape.sub(rf"\1{REDACTED}", text)
        return text

    def format(self, record: Record) -> str:
        """A loguru format (`logger.add(…, format=redactor.format)`): one line, then a traceback.

        Redacts what is written in the end, exceptions included. The line travels as a value, so
        braces or markup in it mean nothing to loguru.
        """
        line = (
            f"{record['time']:YYYY-MM-DD HH:mm:ss.SSS} | {record['level'].name: <8} | "
            f"{record['name']}:{record['line']} - {record['message']}"
        )
        if (error := record["exception"]) is not None and error.value is not None:
            line += "\n" + "".join(traceback.format_exception(error.value)).rstrip()
        record["extra"]["redacted_line"] = self.redact(line)
        return "{extra[redacted_line]}\n"
