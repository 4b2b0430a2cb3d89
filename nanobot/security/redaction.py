"""Secrets never reach logs, prompts or sessions: known values and known key shapes are replaced.

Redaction is the last net, not the boundary: secrets are kept out of tool environments in the first
place. Every pattern starts where the text before it cannot prolong the match, so that the time
taken is linear in the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

REDACTED = "[redacted]"

_MIN_SECRET = 6
"""Shorter values would turn ordinary text into gaps."""

_LONG_LINE = 16
"""A line of a secret that is told by itself; `-----` and the like are no secrets."""

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


def _forms(secret: str) -> Iterator[str]:
    """How a secret stands in texts that others make: as it is, in JSON, in an address, in a
    traceback's quotes, and, of one with several lines such as a private key, each line."""
    yield secret
    if secret.isalnum():
        return
    for as_ascii in (True, False):
        yield json.dumps(secret, ensure_ascii=as_ascii)[1:-1]
    data = secret.encode("utf-8", "backslashreplace")
    yield from (quote(data), quote(data, safe=""), quote_plus(data), repr(secret)[1:-1])
    yield from (line for line in secret.splitlines() if len(line) >= _LONG_LINE)


class Redactor:
    """Replaces the secrets it was given, and whatever looks like a well-known key."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # The longest first: a secret may contain another one.
        known = {secret for secret in secrets if len(secret) >= _MIN_SECRET}
        written = {form for secret in known for form in _forms(secret)}
        self._secrets = sorted(written, key=len, reverse=True)

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
