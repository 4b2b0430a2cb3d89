"""Errors of the Graph API, classified by what to do about them.

GraphError
├── NotSent      it never reached Meta: try again, nothing can happen twice
├── MaybeSent    it went out, and no readable answer came back
│   └── TooLarge the answer exceeds its limit
├── Fault        something on the way answered in place of Meta
└── Refused      Meta answered with an error: `code`, `status`, `seconds` (see `kind`)

Classification goes by Meta's codes, never by its texts. No message contains the access token.
"""

from __future__ import annotations

from typing import Literal

from nanobot.errors import (
    ChannelOff,
    NanobotError,
    SendError,
    SendLater,
    SendRefused,
    SendUnknown,
)

Kind = Literal["token", "account", "busy", "fault", "window", "no"]
"""`token`: a person must fix the token or its rights. `account`: a person must fix the business
account. `busy`: too many requests. `fault`: a failure at Meta. `window`: the recipient has not
written for 24 hours. `no`: the request will always be refused."""

_TOKEN = frozenset({0, 3, 10, 102, 190, 463, 467, 131005}) | frozenset(range(200, 300))
_ACCOUNT = frozenset({368, 131031, 131037, 131042, 131045, 133010})
_BUSY = frozenset({4, 17, 32, 613, 80007, 130429, 131048, 131056})
_FAULT = frozenset({1, 2, 131000, 131016, 131057, 133004, 133005})
_WINDOW = frozenset({470, 131047})
_NO_SUCH_OBJECT = (100, 33)

_WAITS = {4: 60.0, 80007: 60.0, 131048: 600.0, 131056: 10.0}
"""Seconds, where Meta gives none: 131056 is about one recipient, 131048 about complaints."""
_BUSY_WAIT = 5.0
_FAULT_WAIT = 10.0
_PERSON_WAIT = 300.0
"""Between attempts where a person has to fix something first."""
_MAX_WAIT = 3600.0

_EXPLAINED = {
    131026: "it cannot be delivered: there may be no WhatsApp at this number, or an old one",
    131030: "a test number sends only to the numbers that were entered for it at Meta",
    131051: "WhatsApp does not carry messages of this kind",
}
"""Where Meta's own text does not help."""

OUTSIDE_WINDOW = (
    "the person has not written for 24 hours, and until they do only templates are accepted"
)


class GraphError(NanobotError):
    """A request to the Graph API failed."""


class NotSent(GraphError):
    """The request never reached Meta."""


class MaybeSent(GraphError):
    """The request went out; whether Meta acted on it is unknown."""


class TooLarge(MaybeSent):
    """An answer of more than `limit` bytes; the rest of it was not read."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"an answer of more than {limit:,} bytes")


class Fault(GraphError):
    """The answer is not from Meta: from a failing proxy, or a login page."""


class Refused(GraphError):
    """Meta's answer was an error. `code` and `subcode` are Meta's, 0 if it gave none; `status` is
    that of HTTP; `seconds` is how long Meta asks to wait, 0.0 if it does not."""

    def __init__(
        self, text: str, *, code: int, status: int, subcode: int = 0, seconds: float = 0.0
    ) -> None:
        super().__init__(text)
        self.code, self.status, self.subcode, self.seconds = code, status, subcode, seconds

    @property
    def kind(self) -> Kind:
        """What to do about it."""
        return kind_of(self.code, self.status)

    @property
    def retry_after(self) -> float:
        """Seconds to wait before the next attempt."""
        if self.kind in {"token", "account"}:
            return _PERSON_WAIT
        usual = _FAULT_WAIT if self.kind == "fault" else _BUSY_WAIT
        return min(self.seconds or _WAITS.get(self.code, usual), _MAX_WAIT)

    @property
    def needs_person(self) -> str:
        """What a person has to fix, for `nanobot status`; empty if nothing."""
        if self.kind == "token":
            return f"Meta does not accept the access token: {self}"
        if self.kind == "account":
            return f"Meta has limited the business account: {explain(self.code, str(self))}"
        return ""

    def as_channel_off(self) -> ChannelOff | None:
        """What only a change of the settings fixes; None for refusals that may pass."""
        if self.kind == "token":
            return ChannelOff(
                self.needs_person,
                hint="Make a new one for a system user, with the permission "
                "whatsapp_business_messaging, and put it into channels.whatsapp.access_token.",
            )
        if (self.code, self.subcode) == _NO_SUCH_OBJECT:
            return ChannelOff(
                f"Meta knows no such phone number: {self}",
                hint="Compare channels.whatsapp.phone_number_id with Meta's app dashboard; it is "
                "not the number itself.",
            )
        return None


def kind_of(code: int, status: int = 400) -> Kind:
    """The kind of an error with this code, where `status` is that of HTTP."""
    if status == 401 or (code in _TOKEN and (code or status in {401, 403})):
        return "token"
    if code in _WINDOW:
        return "window"
    if code in _ACCOUNT:
        return "account"
    if code in _BUSY or status == 429:
        return "busy"
    if code in _FAULT or status >= 500:
        return "fault"
    return "no"


def explain(code: int, meta_text: str) -> str:
    """A reason for people: ours where the code is known, and Meta's text."""
    known = OUTSIDE_WINDOW if code in _WINDOW else _EXPLAINED.get(code, "")
    reported = meta_text or (f"error {code}" if code else "no reason was given")
    if code and meta_text:
        reported = f"{meta_text} ({code})"
    return f"{known}: {reported}" if known else reported


def as_send_error(error: Exception, *, is_idempotent: bool = False) -> SendError:
    """The port's error for `error`; raise it `from None`.

    `is_idempotent`: the request reaches nobody (an upload), so it can be repeated.
    """
    if isinstance(error, SendError):
        return error
    if isinstance(error, Refused):
        text = explain(error.code, str(error))
        is_final = error.kind in {"no", "window"}
        return SendRefused(text) if is_final else SendLater(text, retry_after=error.retry_after)
    # Texts of foreign errors are not shown: they may contain anything.
    reason = str(error) if isinstance(error, GraphError) else type(error).__name__
    if is_idempotent or isinstance(error, NotSent | Fault):
        return SendLater(f"WhatsApp cannot be reached: {reason}", retry_after=_FAULT_WAIT)
    return SendUnknown(f"WhatsApp did not confirm it: {reason}")
