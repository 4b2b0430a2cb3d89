"""Errors in OpenAI's shape: a status, and an object `error` that all clients read.

The SDKs retry on 408, 409, 429 and from 500 on, unless a header forbids it. It is sent if a retry
would only fail again, or do something twice."""

from __future__ import annotations

import json

INVALID, SERVER = "invalid_request_error", "server_error"


class Problem(Exception):
    """The reason why a request gets no answer. `retry_after` is in seconds, or 0 for none. `again`:
    a client should retry by itself."""

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
        """The object `error`."""
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
        """The headers about retrying."""
        headers = {"Retry-After": str(self.retry_after)} if self.retry_after else {}
        if not self.again:
            headers["x-should-retry"] = "false"
        return headers


def invalid(message: str, param: str | None = None, code: str | None = None) -> Problem:
    """Return the error for an invalid request."""
    return Problem(400, message, code, param=param)


_PASSING = frozenset({"ProviderBusy", "ProviderUnavailable", "ProviderStalled"})
_MODEL_FAILED = ("Provider", "RequestBlamed", "ToolUseFailed")


def problem_of(error: str, text: str) -> Problem:
    """Return the error for a turn that failed with this error class. `text` is its message for a
    person."""
    if error == "ContextTooLong":
        return invalid(
            "This conversation is longer than the model accepts. " + text,
            "messages",
            "context_length_exceeded",
        )
    if error == "BudgetSpent":
        return Problem(429, text, "insufficient_quota", again=False)
    if error in _PASSING:
        return Problem(503, text, "model_unavailable", retry_after=15)
    if error.startswith(_MODEL_FAILED):
        return Problem(502, text, "model_failed", again=False)
    return Problem(500, text or "nanobot could not answer.", "turn_failed", again=False)


def waits(error: str) -> Problem:
    """Return the error for a pending turn: the model is down, a message before it is pending, or
    (`held`) the disk is full."""
    if error == "held":
        return not_stored()
    return Problem(503, "The model cannot be reached.", "model_unavailable", retry_after=15)


def not_stored() -> Problem:
    """Return the error if the disk or the database fails, without details, because programs of
    others read it."""
    text = "nanobot can't store anything right now. Its log shows the reason."
    return Problem(503, text, "storage_unavailable", retry_after=10)


def too_late_to_deliver() -> Problem:
    """Return the timeout error of a request whose answer would have no other receiver."""
    text = "The answer took too long and was stopped."
    return Problem(504, text, "timeout", again=False)


def too_late(repeatable: bool) -> Problem:
    """Return the timeout error of a request whose turn continues."""
    hint = " Repeat the request with the same Idempotency-Key." if repeatable else ""
    text = f"The answer is not ready yet, and nanobot is still working on it.{hint}"
    return Problem(504, text, "timeout", again=repeatable)


def notice(what: str, where: str, *, stateless: bool) -> str:
    """Return the text that ends a request if one of its calls needs an approval. `where` is the
    place of the question, for the owner only."""
    after = "The answer will be sent to the chat where you approve it"
    if not where:
        asked = f"This needs the owner's approval, and they have been asked: {what}."
    else:
        asked = f"This needs your approval: {what}. Answer the question {where} within 10 minutes."
    if not stateless:
        after = f"{after} and to this conversation" if where else "The answer will be sent here"
    elif not where:
        after = "The answer can no longer be sent here"
    return f"{asked} nanobot will then continue. {after}."


def not_yet(text: str) -> Problem:
    """Return the notice as an error, for a client that reads JSON."""
    return Problem(409, text, "approval_pending", again=False)
