"""One model server, and what went wrong with it, as errors.

Servers that call themselves OpenAI-compatible agree on little when they refuse, so this is where
statuses, codes and wordings become decisions. No text made here holds the API key, whatever the
server echoes, and none is long. The readers of foreign JSON give the type asked for, or its empty
value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct
from msgspec.structs import replace

from nanobot.errors import (
    ContextTooLong,
    ProviderBusy,
    ProviderError,
    ProviderGarbage,
    ProviderRejected,
    ProviderUnavailable,
)


def parse_json(data: bytes | str) -> object:
    """The value of `data`; raises `ValueError` for what is no JSON or nested too deeply."""
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    try:
        value: object = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def mapping(value: object) -> Mapping[str, object]:
    """`value` if it is an object."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> Sequence[object]:
    """`value` if it is an array."""
    return value if isinstance(value, list) else ()


def string(value: object) -> str:
    """`value` if it is a string."""
    return value if isinstance(value, str) else ""


def model_names(listing: Mapping[str, object]) -> tuple[str, ...]:
    """The names in a server's list of models; none where it is no list."""
    names = (string(mapping(item).get("id")) for item in items(listing.get("data")))
    return tuple(filter(None, names))


def count(value: object) -> int:
    """`value` if it is a whole number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return max(value, 0)


_DETAIL_CHARACTERS = 300
_LONGEST_WAIT = 86_400.0

_TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size"
    r"|(maximum|max|available|model'?s?) context (length|size|window)"
    r"|context (length|size|window)( was| is| has been)? exceeded"
    r"|exceeds? (the |this )?(model'?s? )?(maximum |available )?context"
    r"|prompt is too long|input is too (long|large)|physical batch size|prompt too long"
    r"|too many (input |prompt )?tokens"
    r"|input token count.{0,40}exceeds|reduce the length of the (messages|prompt|input)"
    r"|longer than the (model'?s? )?(maximum )?context",
    re.IGNORECASE | re.DOTALL,
)
_NO_MONEY = ("insufficient_quota", "billing_not_active", "billing_hard_limit_reached")
_HINTS = {
    401: "Check {0}.api_key: the server does not accept it.",
    402: "The account behind {0}.api_key has no credit left.",
    403: "Check {0}.api_key: it may not use this model.",
    404: "Check {0}.name and {0}.base_url: the server does not know one of them.",
}
_NO_KEY = re.compile(
    r"(invalid|incorrect|not valid|missing).{0,20}api.?key|api.?key not valid", re.I
)
"""What servers say of a key that is none where their status only says that the request is wrong."""
_REDIRECT_HINT = "Set {0}.base_url to the address the server redirects to."


class ErrorBody(Struct, frozen=True):
    """What an error answer says, as far as it could be understood."""

    message: str = ""
    code: str = ""
    kind: str = ""

    @classmethod
    def of(cls, error: object) -> ErrorBody:
        """Read the value of an `error` field: an object, or a bare sentence."""
        if isinstance(error, str):
            return cls(error)
        fields = mapping(error)
        code = fields.get("code")
        message = string(fields.get("message")) or string(fields.get("detail"))
        return cls(message, "" if code is None else str(code), string(fields.get("type")))

    @classmethod
    def in_body(cls, body: bytes) -> ErrorBody:
        """Read the body of an answer with an error status."""
        try:
            parsed = parse_json(body)
        except ValueError:
            return cls(body.decode("utf-8", "replace"))
        whole = mapping(next(iter(items(parsed)), parsed))  # Gemini has it in an array
        said = cls.of(whole.get("error") or whole)
        return said if said.message else replace(said, message=body.decode("utf-8", "replace"))

    @property
    def too_long(self) -> bool:
        """Whether this says that the prompt does not fit."""
        return bool(_TOO_LONG.search(f"{self.code}\n{self.kind}\n{self.message}"))

    @property
    def out_of_money(self) -> bool:
        """Whether this says that the account, not the moment, is the trouble."""
        return self.code in _NO_MONEY or self.kind in _NO_MONEY


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One model server, as errors speak of it. `settings` is where the configuration names it.
    Where there are `headers`, they take the place of the usual one with the key."""

    base_url: str
    model: str
    api_key: str = field(default="", repr=False)
    settings: str = "model"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def object_in(self, answer: bytes) -> Mapping[str, object]:
        """The JSON object of a whole answer. Raises `ProviderError` for anything else, and for an
        error in it."""
        try:
            fields = mapping(parse_json(answer))
        except ValueError as error:
            raise self.garbage("something that is not JSON", answer) from error
        if fields.get("error"):
            raise self.refused_inside(fields["error"])
        return fields

    @property
    def place(self) -> str:
        """The address without anything secret in it."""
        parts = urlsplit(self.base_url)
        host = parts.netloc.rpartition("@")[2]
        return self.shorten(urlunsplit((parts.scheme, host, parts.path, "", "")))

    def shorten(self, text: str) -> str:
        """`text` on one line, without the key, cut to what a person reads."""
        if self.api_key:
            text = text.replace(self.api_key, "[api key]")
        text = " ".join(text[: 20 * _DETAIL_CHARACTERS].split())
        text = "".join(letter if letter.isprintable() else "?" for letter in text)
        return text if len(text) <= _DETAIL_CHARACTERS else f"{text[:_DETAIL_CHARACTERS]}…"

    def unreachable(self, reason: str) -> ProviderUnavailable:
        """No connection."""
        return ProviderUnavailable(
            f"cannot reach the model server at {self.place}: {self.shorten(reason)}",
            hint=self._hint(0) or f"Check {self.settings}.base_url and the network.",
        )

    def stalled(self, seconds: float) -> ProviderUnavailable:
        """Connected, and then nothing."""
        return ProviderUnavailable(
            f"the model server at {self.place} sent nothing for {seconds:g} seconds"
        )

    def cut(self, reason: str) -> ProviderUnavailable:
        """The answer broke off."""
        text = self.shorten(reason)
        return ProviderUnavailable(
            f"the model server at {self.place} broke off in the middle of its answer", detail=text
        )

    def garbage(self, what: str, excerpt: bytes = b"") -> ProviderGarbage:
        """An answer that is none."""
        shown = self.shorten(excerpt[:4096].decode("utf-8", "replace"))
        return ProviderGarbage(
            f"the model server at {self.place} answered with {what}", detail=shown
        )

    def unusable(self, what: str, hint: str) -> ProviderRejected:
        """The request cannot even be made."""
        return ProviderRejected(what, status=0, hint=hint)

    def refused(self, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """An answer with an error status."""
        return self._decide(status, ErrorBody.in_body(body), retry_after(headers))

    def refused_inside(self, error: object) -> ProviderError:
        """An error in an answer that began with status 200."""
        said = ErrorBody.of(error)
        return self._decide(_status_of(said), said, 0.0)

    def _decide(self, status: int, said: ErrorBody, wait: float) -> ProviderError:
        detail = self.shorten(said.message)
        tail = f": {detail}" if detail else ""
        # llama.cpp calls it a failure of its own (500).
        if status == 413 or (said.too_long and (status in (400, 422) or status >= 500)):
            return ContextTooLong(
                f"the prompt is too long for {self.model}", status=status, detail=detail
            )
        if status == 429 and not said.out_of_money:
            return ProviderBusy(
                f"the model server at {self.place} is busy (429){tail}",
                retry_after=wait,
                detail=detail,
            )
        if status in (408, 409) or status >= 500:
            return ProviderUnavailable(
                f"the model server at {self.place} failed ({status}){tail}",
                retry_after=wait,
                detail=detail,
            )
        meant = 402 if said.out_of_money else status
        meant = 401 if status in (400, 403) and _NO_KEY.search(said.message) else meant
        return ProviderRejected(
            f"the model server at {self.place} refused the request ({status}){tail}",
            status=status,
            detail=detail,
            hint=self._hint(meant),
        )

    def _hint(self, status: int) -> str:
        """What to do about a status, 0 where there is no connection; empty where that is unknown.
        What is known of this very server goes first."""
        from nanobot.providers.catalogue import provider_at

        known = provider_at(self.base_url)
        if known and (hint := known.hint(status, self.settings, self.model)):
            return hint
        usual = _REDIRECT_HINT if 300 <= status < 400 else _HINTS.get(status, "")
        return usual.format(self.settings)


def _status_of(said: ErrorBody) -> int:
    """The status that an error inside an answer amounts to."""
    if said.code.isdecimal() and len(said.code) == 3 and int(said.code) >= 400:
        return int(said.code)
    if said.too_long or said.kind == "invalid_request_error":
        return 400
    if said.out_of_money or "rate_limit" in said.code + said.kind:
        return 429
    return 502


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds to wait as the server asks, 0.0 where it does not; `headers` have lower-case names.
    A date is taken relative to the server's own `Date`, so a wrong clock here does no harm."""
    value = headers.get("retry-after", "")
    for text, unit in ((headers.get("retry-after-ms", ""), 1000), (value, 1)):
        with suppress(ValueError):
            seconds = float(text) / unit
            return min(max(seconds, 0.0), _LONGEST_WAIT) if math.isfinite(seconds) else 0.0
    due, now = date_in(value), date_in(headers.get("date", ""))
    return min(max((due - now).total_seconds(), 0.0), _LONGEST_WAIT) if due and now else 0.0


def date_in(text: str) -> datetime | None:
    """The time in a header, if it is one."""
    from email.utils import parsedate_to_datetime

    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)
