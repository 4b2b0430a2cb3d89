"""Redaction of known values and key patterns, so that secrets never reach logs, prompts or
sessions.

It is the last line of defence: secrets are kept out of tool environments in the first place. A
pattern starts only where the text before it cannot extend the match, so time is linear."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

REDACTED = "[redacted]"

_MIN_SECRET = 6
"""Redacting shorter values would damage ordinary text."""

_LONG_LINE = 16
"""A line of a secret that is redacted by itself. Lines such as `-----` are not secrets."""

# A pattern is only tried where its marker occurs, which costs a search for a literal. The name is
# the usual one of a variable that holds such a key.
_SHAPES = tuple(
    (name, marker, re.compile(rf"(?<![\w-])(?:{pattern})"))
    for name, marker, pattern in (
        ("ANTHROPIC_API_KEY", "sk-ant-", r"sk-ant-(?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9_-]{12,}"),
        ("OPENAI_API_KEY", "sk-", r"sk-(?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9_-]{16,}"),  # and kin
        ("AWS_ACCESS_KEY_ID", "AKIA", r"AKIA[A-Z0-9]{16}(?!\w)"),
        ("AWS_ACCESS_KEY_ID", "ASIA", r"ASIA[A-Z0-9]{16}(?!\w)"),
        ("GITHUB_TOKEN", "gh", r"gh[pousr]_[A-Za-z0-9]{36,}"),
        ("GITHUB_TOKEN", "github_pat_", r"github_pat_[A-Za-z0-9_]{22,}"),
        ("GOOGLE_API_KEY", "AIza", r"AIza[A-Za-z0-9_-]{35}"),
        ("SLACK_TOKEN", "xox", r"xox[abeprs]-[A-Za-z0-9-]{10,}"),
        (
            "PRIVATE_KEY",
            "PRIVATE KEY-----",
            r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY-----(?:[^-]|-(?!----)){40,20000}"
            r"-----END (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY-----",
        ),
    )
)
_TELEGRAM_END = re.compile(r":[A-Za-z0-9_-]{35}(?![\w-])")
_TELEGRAM = re.compile(rf"(?<![0-9])[0-9]{{8,10}}{_TELEGRAM_END.pattern}")
_LABELS = tuple(
    (name, marker, re.compile(rf"({label})([A-Za-z0-9._~+/-]{{16,}}=*)", re.IGNORECASE))
    for name, marker, label in (
        ("ACCESS_TOKEN", "bearer", r"(?<!\w)bearer[ \t]{1,4}(?=[A-Za-z._~+/-]{0,64}[0-9])"),
        (
            "AWS_SECRET_ACCESS_KEY",
            "aws_secret",
            r"(?<!\w)aws_secret_access_key[\"']?[ \t]{0,4}[=:][ \t]{0,4}[\"']?",
        ),
    )
)


def keys_in(text: str) -> dict[str, str]:
    """Return the well-known keys in a text, each with the usual name of such a key."""
    found: dict[str, str] = {}
    for name, marker, shape in _SHAPES:
        if marker in text:
            found |= {key: found.get(key, name) for key in shape.findall(text)}
    if _TELEGRAM_END.search(text):
        found |= dict.fromkeys(_TELEGRAM.findall(text), "TELEGRAM_TOKEN")
    lower = text.lower()
    for name, marker, shape in _LABELS:
        if marker in lower:
            found |= {key: found.get(key, name) for _, key in shape.findall(text)}
    return found


def spell_secret(secret: str) -> Iterator[str]:
    """Yield the spellings of a secret: as is, in JSON, in a URL, in a `repr`, and each line of a
    multi-line secret such as a private key."""
    yield secret
    if secret.isalnum():
        return
    for as_ascii in (True, False):
        yield json.dumps(secret, ensure_ascii=as_ascii)[1:-1]
    data = secret.encode("utf-8", "backslashreplace")
    yield from (quote(data), quote(data, safe=""), quote_plus(data), repr(secret)[1:-1])
    yield from (line for line in secret.splitlines() if len(line) >= _LONG_LINE)


class Redactor:
    """Replaces given secrets and well-known keys."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: list[str] = []
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Add secrets."""
        known = {secret for secret in secrets if len(secret) >= _MIN_SECRET}
        written = {form for secret in known for form in spell_secret(secret)}
        # The longest first: a secret may contain another one.
        self._secrets = sorted({*self._secrets, *written}, key=len, reverse=True)

    def redact(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        for _, marker, shape in _SHAPES:
            if marker in text:
                text = shape.sub(REDACTED, text)
        if _TELEGRAM_END.search(text):
            text = _TELEGRAM.sub(REDACTED, text)
        lower = text.lower()
        for _, marker, shape in _LABELS:
            if marker in lower:
                text = shape.sub(rf"\1{REDACTED}", text)
        return text
