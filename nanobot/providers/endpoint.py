"""A model server, and its failures as errors.

Statuses become decisions here, with the help of the wordings in `refusals`. No text made here is
long or contains the API key or another secret, even if the server echoes it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from nanobot.errors import (
    ContextTooLong,
    ProviderBusy,
    ProviderError,
    ProviderGarbage,
    ProviderRejected,
    ProviderStalled,
    ProviderUnavailable,
    RequestBlamed,
    ToolUseFailed,
)
from nanobot.providers.fields import (
    mapping,
    parse_json,
)

if TYPE_CHECKING:
    from nanobot.providers.overflow import Overflow
    from nanobot.providers.refusals import ErrorBody

_NOT_ABOUT_LENGTH = frozenset({401, 402, 403, 404, 405, 407, 408, 409})


_DETAIL_CHARACTERS = 300  # of a server's text in an error
_LONGEST_WAIT = 86_400.0  # a day
_EXCERPT = 4_096  # bytes of an unexpected answer

_HINTS = {
    401: "Check {0}.api_key: the server does not accept it.",
    402: "The account behind {0}.api_key has no credit left.",
    403: "Check {0}.api_key: it has no access to this model.",
    404: "Check {0}.name and {0}.base_url, which usually ends in /v1.",
}
_SHORTER_ANSWER = "Lower {0}.max_completion_tokens. The model can't give such a long answer."
_REDIRECT_HINT = "Set {0}.base_url to the target of the server's redirect."


_LEAST_KEY = 8  # characters of a real key


def is_secret_key(key: str, base_url: str, model: str) -> bool:
    """Return True if a model server's key must be kept out of texts. Local servers accept any word,
    and then people write `ollama`, or the name of the host or the model."""
    if len(key) < _LEAST_KEY:
        return False
    host = base_url.partition("://")[2].partition("/")[0].rpartition("@")[2]
    return key not in host and key not in model


T = TypeVar("T")

_MOST_MARKS = 1_000_000  # of JSON in a whole answer: 64 vectors of 8,192 numbers have half of that


class Endpoint(Struct, frozen=True, dict=True):
    """A model server, as errors describe it. `settings` is its section of the configuration.
    `headers` replace the usual header with the key. `own_headers` are the owner's, which override
    all others."""

    base_url: str
    model: str
    api_key: str = ""
    settings: str = "model"
    headers: Mapping[str, str] = {}
    own_headers: Mapping[str, str] = {}

    def __repr__(self) -> str:
        """Leave out the key and the headers, which are secrets."""
        return f"Endpoint({self.base_url!r}, {self.model!r})"

    def with_own_headers(self, headers: Mapping[str, T]) -> dict[str, T | str]:
        """Return these headers, overridden by the owner's."""
        own = {name.lower() for name in self.own_headers}
        kept = {name: value for name, value in headers.items() if name.lower() not in own}
        return {**kept, **self.own_headers}

    def object_in(self, answer: bytes) -> Mapping[str, object]:
        """Return the JSON object of a whole answer. Raise `ProviderError` for anything else, and if
        the object is an error."""
        from nanobot.providers.refusals import error_in

        try:
            fields = mapping(parse_json(answer, _MOST_MARKS))
        except ValueError as error:
            raise self.garbage_error("something that is not JSON", answer) from error
        if said := error_in(fields):
            raise self.body_error(said)
        return fields

    @cached_property
    def place(self) -> str:
        """The address without secrets, empty if it is invalid."""
        try:
            parts = urlsplit(self.base_url)
        except ValueError:
            return ""
        host = parts.netloc.rpartition("@")[2]
        return self.shorten(urlunsplit((parts.scheme, host, parts.path, "", "")))

    def source(self, model: str) -> str:
        """Return the name of this server with a model."""
        return f"{self.place} {model}"

    def shorten(self, text: str) -> str:
        """Return `text` on one line, without secrets, cut to a readable length."""
        for secret in self._secrets:
            text = text.replace(secret, "[api key]")
        text = " ".join(text[: 20 * _DETAIL_CHARACTERS].split())
        text = "".join(letter if letter.isprintable() else "?" for letter in text)
        return text if len(text) <= _DETAIL_CHARACTERS else f"{text[:_DETAIL_CHARACTERS]}…"

    @property
    def _secrets(self) -> Iterator[str]:
        """The key, the password in the address, and the owner's headers with their words."""
        password = self.base_url.rpartition("@")[0].rpartition(":")[2]
        headers = (part for one in self.own_headers.values() for part in (one, *one.split()))
        for secret in (self.api_key, password, *headers):
            if is_secret_key(secret, self.base_url, self.model):
                yield secret

    def _describe(self, what: str, detail: str) -> str:
        """Return the server's action, with its text if there is any."""
        return ": ".join(filter(None, (f"the model server at {self.place} {what}", detail)))

    def unreachable_error(self, reason: str) -> ProviderUnavailable:
        reason = self.shorten(reason)
        return ProviderUnavailable(
            f"cannot reach the model server at {self.place}: {reason}",
            hint=self._choose_hint(0) or f"Check {self.settings}.base_url and the network.",
            reason=reason,
        )

    def stall_error(self, seconds: float) -> ProviderStalled:
        hint = f"If it needs longer, raise {self.settings}.timeout_seconds."
        return ProviderStalled(
            f"the model server at {self.place} sent nothing for {seconds:g} seconds",
            hint=hint if self.settings.startswith("model") else "",
            reason=f"no answer for {seconds:g} s",
        )

    def cut_error(self, reason: str) -> ProviderUnavailable:
        text = self.shorten(reason)
        return ProviderUnavailable(
            f"the model server at {self.place} stopped in the middle of its answer",
            detail=text,
            reason="the answer broke off",
        )

    def garbage_error(self, what: str, excerpt: bytes = b"") -> ProviderGarbage:
        from nanobot.providers.refusals import text_of_page

        text = excerpt[:_EXCERPT].decode("utf-8", "replace").strip()
        shown = self.shorten(text_of_page(text))
        hint = self._choose_hint(404) if text.startswith("<") else ""
        what = self._describe(f"answered with {what}", shown)
        return ProviderGarbage(what, detail=shown, hint=hint, reason="unreadable answer")

    def unusable_error(self, what: str, hint: str) -> ProviderRejected:
        return ProviderRejected(what, status=0, hint=hint)

    def refusal_error(self, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        from nanobot.providers.refusals import ErrorBody  # not needed at start

        return self._decide(status, ErrorBody.in_body(body), retry_after(headers))

    def body_error(self, said: ErrorBody) -> ProviderError:
        """Return the error in an answer with status 200; see `error_in`. An unknown kind may be
        temporary, but is no reason to wait for hours."""
        if said.status or said.generation:
            return self._decide(said.status, said, 0.0)
        detail = self.shorten(said.message)
        return ProviderGarbage(self._describe("answered with an error", detail), detail=detail)

    def _decide(self, status: int, said: ErrorBody, wait: float) -> ProviderError:
        detail = self.shorten(said.message)
        overflow = None if status in _NOT_ABOUT_LENGTH else said.overflow
        if status == 413 or overflow is not None:
            return self._overflow_error(status, overflow, detail)
        if said.generation:
            return ToolUseFailed(
                f"the model at {self.place} called a tool in a format that its server can't parse",
                generation=said.generation,
                detail=detail,
            )
        match said.meaning(status):
            case "busy":
                what = self._describe(f"is busy ({status})", detail)
                why = f"busy ({status})"
                return ProviderBusy(what, retry_after=wait, detail=detail, reason=why)
            case "failed":
                what = self._describe(f"failed ({status})", detail)
                why = f"server error ({status})"
                return ProviderUnavailable(what, retry_after=wait, detail=detail, reason=why)
            case "blamed":
                what = self._describe(f"cannot handle the request ({status})", detail)
                hint = self._choose_hint(status, said.message)
                return RequestBlamed(what, status=status, detail=detail, hint=hint)
            case meant:
                hint = self._choose_hint(meant, said.message)
        if meant in (400, 422) and said.blames_answer:
            hint = _SHORTER_ANSWER.format(self.settings)
        what = self._describe(f"rejected the request ({status})", detail)
        return ProviderRejected(what, status=status, detail=detail, hint=hint)

    def _overflow_error(
        self, status: int, overflow: Overflow | None, detail: str
    ) -> ContextTooLong:
        tokens, window = (overflow.tokens, overflow.window) if overflow else (0, 0)
        counts = ""
        if tokens and window:
            counts = f": {tokens:,} tokens, but the server accepts {window:,}"
        elif window:
            counts = f": the server accepts {window:,} tokens"
        if "minute" in detail:  # a limit of the account
            counts += f" ({detail})"
        return ContextTooLong(
            f"the prompt is too long for {self.model or 'the model'}{counts}",
            status=status,
            detail=detail,
            tokens=tokens,
            window=window,
        )

    def _choose_hint(self, status: int, said: str = "") -> str:
        """Return advice about a status (0: no connection) and the server's text, or an empty
        string. Hints for this particular server come first."""
        from nanobot.providers.known_servers import provider_at, tools_hint

        if said and (hint := tools_hint(said)):
            return hint
        known = provider_at(self.base_url)
        if known and (hint := known.hint(status, self.settings, self.model)):
            return hint
        usual = _REDIRECT_HINT if 300 <= status < 400 else _HINTS.get(status, "")
        return usual.format(self.settings)


def retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds that a server asks to wait, or 0.0. `headers` have lower-case names. A
    date is relative to the server's own `Date`, so a wrong local clock does no harm."""
    from email.utils import parsedate_to_datetime

    seconds, value = 0.0, headers.get("retry-after", "")
    with suppress(ValueError, TypeError):
        if milliseconds := headers.get("retry-after-ms"):
            seconds = float(milliseconds) / 1000
        elif value[:1].isalpha():
            due, now = map(parsedate_to_datetime, (value, headers.get("date", "")))
            seconds = (due - now).total_seconds()
        else:
            seconds = float(value or 0)
    return min(max(seconds, 0.0), _LONGEST_WAIT) if math.isfinite(seconds) else 0.0
