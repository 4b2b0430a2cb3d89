"""What can go wrong between us and the Graph API, by what to do about it.

GraphError
├── NotSent      it never reached Meta: try again, nothing can happen twice
├── MaybeSent    it went out, and no answer that can be read came back
├── Fault        something on the way answered in Meta's place
└── Refused      Meta answered with an error: `code`, `status`, `seconds` (see `kind`)

Meta's codes are what counts, never its words. No text in here holds the access token: addresses do
not either, it goes in a header.
"""

from __future__ import annotations

from typing import Literal

from nanobot.errors import NanobotError, SendError, SendLater, SendRefused, SendUnknown

Kind = Literal["token", "account", "busy", "fault", "window", "no"]
"""`token`: a person must mend the token or its rights. `account`: a person must mend the business
account. `busy`: too many requests. `fault`: Meta's own. `window`: the person has not written for 24
hours. `no`: this request will be refused however often it is made."""

_TOKEN = frozenset({0, 3, 10, 102, 190, 463, 467, 131005}) | frozenset(range(200, 300))
_ACCOUNT = frozenset({368, 131031, 131037, 131042, 131045, 133010})
_BUSY = frozenset({4, 17, 32, 613, 80007, 130429, 131048, 131056})
_FAULT = frozenset({1, 2, 131000, 131016, 131057, 133004, 133005})
_WINDOW = frozenset({470, 131047})
_NO_SUCH_OBJECT = (100, 33)

_WAITS = {4: 60.0, 80007: 60.0, 131048: 600.0, 131056: 10.0}
"""Seconds, where Meta does not say: 131056 is about one person, 131048 about complaints."""
_USUAL_WAIT = 5.0
_FAULT_WAIT = 10.0
_PERSON_WAIT = 300.0
"""Between attempts where a person has to mend something first: nothing is lost until then."""
_LONGEST_WAIT = 3600.0

_IN_WORDS = {
    100: "WhatsApp does not take this message as it is",
    130472: "WhatsApp holds back messages to this person as part of an experiment",
    131021: "a number cannot write to itself",
    131026: "the message cannot be delivered: there may be no WhatsApp at this number, or an old "
    "one",
    131030: "a test number sends only to the numbers that were entered for it at Meta",
    131049: "WhatsApp did not deliver it, to spare this person too many messages",
    131050: "this person wants no such messages from the business",
    131051: "WhatsApp does not carry messages of this kind",
    131052: "WhatsApp could not load the file",
    131053: "WhatsApp does not take this file",
    131062: "WhatsApp needs a phone number for this message",
}

OUTSIDE_WINDOW = (
    "the person has not written for 24 hours, and until they do only templates are taken"
)


class GraphError(NanobotError):
    """A request to the Graph API did not work."""


class NotSent(GraphError):
    """The request never reached Meta."""


class MaybeSent(GraphError):
    """The request went out; whether Meta acted on it is not known."""


class Fault(GraphError):
    """The answer is not Meta's: of a proxy that failed, or a page to log in at."""


class Refused(GraphError):
    """Meta's answer was an error. `code` and `subcode` are Meta's, 0 where it gave none; `status`
    is HTTP's; `seconds` is how long Meta asks to wait, 0.0 where it does not."""

    def __init__(
        self, words: str, *, code: int, status: int, subcode: int = 0, seconds: float = 0.0
    ) -> None:
        super().__init__(words)
        self.code, self.status, self.subcode, self.seconds = code, status, subcode, seconds

    @property
    def kind(self) -> Kind:
        """What to do about it."""
        return kind_of(self.code, self.status)

    @property
    def is_unknown(self) -> bool:
        """Whether what was asked for does not exist, or not for this token."""
        return (self.code, self.subcode) == _NO_SUCH_OBJECT


def kind_of(code: int, status: int = 400) -> Kind:
    """What an error with this code means, where `status` is HTTP's."""
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


def in_words(code: int, said: str) -> str:
    """A reason for people: ours where the code is known, and what Meta said."""
    known = OUTSIDE_WINDOW if code in _WINDOW else _IN_WORDS.get(code, "")
    if not code:
        told = said or "no reason was given"
    else:
        told = f"{said} ({code})" if said else f"error {code}"
    return f"{known}: {told}" if known else told


def wait_of(error: Refused) -> float:
    """How many seconds to wait before the next attempt."""
    if error.kind in {"token", "account"}:
        return _PERSON_WAIT
    usual = _FAULT_WAIT if error.kind == "fault" else _USUAL_WAIT
    return min(error.seconds or _WAITS.get(error.code, usual), _LONGEST_WAIT)


def as_send_error(error: Exception, *, harmless: bool = False) -> SendError:
    """What the core should do about `error`; raise it `from None`.

    `harmless`: the request sends nothing to anybody (an upload), so it can be made again.
    """
    if isinstance(error, SendError):
        return error
    if isinstance(error, Refused):
        words = in_words(error.code, str(error))
        is_final = error.kind in {"no", "window"}
        return SendRefused(words) if is_final else SendLater(words, retry_after=wait_of(error))
    if harmless or isinstance(error, NotSent | Fault):
        return SendLater(f"WhatsApp cannot be reached: {_said(error)}", retry_after=_FAULT_WAIT)
    return SendUnknown(f"WhatsApp did not confirm it: {_said(error)}")


def _said(error: Exception) -> str:
    """Ours say what is meant for people; of others only the kind is told."""
    return str(error) if isinstance(error, GraphError) else type(error).__name__


def trouble_of(error: Refused) -> str:
    """What a person has to mend, for `nanobot status`; empty where there is nothing."""
    match error.kind:
        case "token":
            return f"Meta does not accept the access token: {error}"
        case "account":
            return f"Meta has limited the business account: {in_words(error.code, str(error))}"
    return ""
