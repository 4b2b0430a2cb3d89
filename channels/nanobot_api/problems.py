"""What goes wrong, in OpenAI's shape: a status, and an object `error` that all clients read.

The SDKs repeat a request on 408, 409, 429 and from 500 on, unless a header forbids it; so that is
sent where a repetition would only do the same again, or do it twice.
"""

from __future__ import annotations

import json

INVALID, SERVER = "invalid_request_error", "server_error"


class Problem(Exception):
    """Why a request gets no answer. `retry_after` is in seconds, 0: not said. `again` is whether a
    client should try again by itself."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        *,
        param: str | None = None,
        retry_after: int = 0,
        again: bool = True,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.retry_after, self.again = retry_after, again

    @property
    def error(self) -> dict[str, object]:
        """The object that says so."""
        kind = SERVER if self.status >= 500 else INVALID
        if self.status == 429:
            kind = "rate_limit_error"
        return {"message": self.message, "type": kind, "param": self.param, "code": self.code}

    @property
    def body(self) -> bytes:
        """The body of the answer."""
        return json.dumps({"error": self.error}).encode()

    @property
    def headers(self) -> dict[str, str]:
        """What the answer's headers say about trying again."""
        headers = {"Retry-After": str(self.retry_after)} if self.retry_after else {}
        if not self.again:
            headers["x-should-retry"] = "false"
        return headers


def invalid(message: str, param: str | None = None, code: str | None = None) -> Problem:
    """A request that cannot be taken as it is."""
    return Problem(400, message, code, param=param)


_PASSING = frozenset({"ProviderBusy", "ProviderUnavailable", "ProviderStalled"})
_MODEL_FAILED = ("Provider", "RequestBlamed", "ToolUseFailed")


def problem_of(error: str, text: str) -> Problem:
    """What a turn that failed with this class of error comes to; `text` is what a person would have
    read."""
    if error == "ContextTooLong":
        return invalid(
            "This conversation is longer than the model takes. " + text,
            "messages",
            "context_length_exceeded",
        )
    if error == "BudgetSpent":
        return Problem(429, text, "insufficient_quota", again=False)
    if error in _PASSING:
        return Problem(503, text, "model_unavailable", retry_after=15)
    if error.startswith(_MODEL_FAILED):
        return Problem(502, text, "model_failed", again=False)
    return Problem(500, text or "The answer failed.", "turn_failed", again=False)


def waits(error: str) -> Problem:
    """The turn has to wait: for a model that is out, behind another message that does, or (`held`)
    for the disk."""
    if error == "held":
        return not_stored()
    return Problem(503, "The model cannot be reached.", "model_unavailable", retry_after=15)


def not_stored() -> Problem:
    """The disk or the database refuses. Programs of others read this too, so it says no more."""
    text = "nanobot can't store anything now. The reason is in its log."
    return Problem(503, text, "storage_unavailable", retry_after=10)


def stopped_late() -> Problem:
    """The answer takes longer than a request waits for it, and only that request could get it."""
    text = "The answer took too long, and was stopped."
    return Problem(504, text, "timeout", again=False)


def too_late(repeatable: bool) -> Problem:
    """The answer takes longer than a request waits for it."""
    hint = " Ask again with the same Idempotency-Key." if repeatable else ""
    text = f"The answer is not ready yet, and nanobot is still working on it.{hint}"
    return Problem(504, text, "timeout", again=repeatable)


def notice(what: str, where: str, *, stateless: bool) -> str:
    """Return the text that ends a request whose call waits for an approval. `where` the owner finds
    the question is for the owner only."""
    after = "the answer goes to the chat of the approval"
    if not where:
        asked = f"This needs the owner's approval, and they have been asked: {what}."
    else:
        asked = f"This needs your approval: {what}. Answer the question {where} within 10 minutes."
    if not stateless:
        after = (
            f"{after}, and into this conversation" if where else "it comes into this conversation"
        )
    elif not where:
        after = "it can't be sent here any more"
    return f"{asked} nanobot then continues, and {after}."


def not_yet(text: str) -> Problem:
    """A client that reads JSON can't be given the notice as its answer."""
    return Problem(409, text, "approval_pending", again=False)
