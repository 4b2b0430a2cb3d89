"""The error tree. Each branch is a decision for the code that catches it.

NanobotError                 a message for people; carries `hint`, the fix
├── ConfigError              nothing starts; names file, line, key
├── HomeLocked               another process owns this home (exit code 75)
├── NoGateway                nothing was done: another gateway may do it
├── ConnectionLost           the gateway may have done it (exit code 69)
├── StorageError             the disk failed; nothing was lost, retry once it is fixed
├── UnknownSession           no conversation has this key
├── ExtraMissing             a feature whose packages are optional and not installed
├── ProviderError            the model could not answer
│   ├── ProviderBusy         wait `retry_after` seconds, then ask again
│   ├── ProviderUnavailable  network, 5xx: ask again later
│   │   └── ProviderStalled  silence: after the second one a longer timeout is needed
│   ├── ProviderGarbage      an unusable answer: ask again, then give up
│   │   ├── RequestBlamed    a 5xx that is the request's fault
│   │   └── ToolUseFailed    a tool call that the server could not parse; carries its text
│   ├── ProviderRejected     asking again will not help (401, 400, 404)
│   ├── ProviderFiltered     the provider withheld the answer
│   ├── ContextTooLong       the prompt must shrink first
│   └── BudgetSpent          the owner's limit for today is reached; no request was sent
├── ToolError                shown to the model, which can act on it
│   ├── ToolUnavailable      the owner has to change something first
│   ├── PathRefused          outside the caller's roots
│   └── WriteConflict        another writer was faster: read again, then write
├── SendError                a channel could not deliver a part
│   ├── SendLater            it did not arrive: try again
│   ├── SendUnknown          it may have arrived: repeated once
│   └── SendRefused          it never will
├── ChannelOff               a channel is off until its settings are fixed
└── TurnStopped              the user stopped this turn; unwind quietly"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

WITHHELD = "this does not work right now, and only the owner can see why"
"""Text that other people than the owner read in place of an error for the owner."""


class NanobotError(Exception):
    """An error to show to people. `str(error)` is one sentence, `hint` is the fix."""

    exit_code = 1
    for_operator = False
    """True if it names files, addresses, accounts or settings, which only the owner may read."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def redact_for(self, *, is_owner: bool) -> NanobotError:
        """Return the error as this audience may read it."""
        return self if is_owner or not self.for_operator else NanobotError(WITHHELD)

    def for_people(self) -> str:
        """Return the message, and the hint, if any, on a second line."""
        return f"{self}\n  {self.hint}" if self.hint else str(self)


class ConfigError(NanobotError):
    """The configuration is invalid. `line` is 1-based, 0 if no line is at fault."""

    for_operator = True
    exit_code = 78  # EX_CONFIG of sysexits.h

    def __init__(
        self, message: str, *, file: str = "", line: int = 0, key: str = "", hint: str = ""
    ) -> None:
        place = f"{file}:{line}: " if file and line else f"{file}: " if file else ""
        super().__init__(f"{place}{f'{key}: ' if key else ''}{message}", hint=hint)
        self.message, self.file, self.line, self.key = message, file, line, key


class HomeLocked(NanobotError):
    """Another process owns this home. `pid` is its process id, 0 if unreadable. `leaving` is its
    state while it shuts down or restarts, or empty (see `gateway.lock`)."""

    for_operator = True
    exit_code = 75  # EX_TEMPFAIL

    def __init__(self, home: Path, pid: int, leaving: str = "") -> None:
        super().__init__(
            f"another nanobot (pid {pid or 'unknown'}) is using {home}",
            hint="Stop it first, or set NANOBOT_HOME to another home.",
        )
        self.pid, self.leaving = pid, leaving


class NoGateway(NanobotError):
    """No gateway runs on this home, or it is shutting down and has not executed the request."""


class ConnectionLost(NanobotError):
    """The gateway went away before it answered. Exit code 69: service unavailable."""

    exit_code = 69


NOTHING_LOST = "Stored data is not lost."

_HINTS: Mapping[int, str] = {
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
        "Free some space, or raise the quota or limit. Stored data is not lost.",
    ),
    errno.EROFS: (
        "The disk is mounted read-only. Mount it writable, or set NANOBOT_HOME to another disk."
    ),
    errno.ENOENT: (
        "The file or a parent folder is missing. Put it back, or restart nanobot, which creates "
        "the folders that it needs."
    ),
    **dict.fromkeys(
        (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ELOOP),
        "Something else is in its place, such as a file instead of a folder. Move it away.",
    ),
    **dict.fromkeys(
        (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENAMETOOLONG),
        "The file system does not support this. Set NANOBOT_HOME to a short path on a local disk.",
    ),
    **dict.fromkeys(
        (errno.EMFILE, errno.ENFILE, errno.ENOMEM),
        "The machine or the service has run out of memory or open files. Stop other programs, or "
        f"raise the limit. {NOTHING_LOST}",
    ),
    **dict.fromkeys(
        (errno.EIO, errno.EUCLEAN, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.ENODEV),
        "The disk or network share reports errors or is missing. Check `dmesg`, mount it again, "
        "and make a copy of nanobot's home.",
    ),
}
"""Fixes by the errno of the operating system."""


def storage_hint(number: int, path: Path | str) -> str:
    """Return the fix for a failure with this `errno` at `path`."""
    if number in (errno.EACCES, errno.EPERM) and Path(path).is_absolute():
        from shlex import quote

        me, path = os.geteuid(), quote(str(path))
        hint = f"nanobot's user (uid {me}) must own it and its parent folders in the home. Run"
        return f"{hint} `sudo chown -R {me} {path}`, or `chmod u+rwX {path}`."
    if number in (errno.EACCES, errno.EPERM):
        return "nanobot's user must own it and its parent folders."
    return _HINTS.get(number, NOTHING_LOST)


class StorageError(NanobotError):
    """The operating system rejected a read or a write of `path`."""

    for_operator = True

    def __init__(self, path: Path | str, reason: str, *, hint: str = NOTHING_LOST) -> None:
        super().__init__(f"cannot use {path}: {reason}", hint=hint)
        self.path, self.reason = path, reason

    @classmethod
    def of(cls, path: Path | str, error: OSError) -> StorageError:
        hint = storage_hint(error.errno or 0, path)
        return cls(path, error.strerror or str(error), hint=hint)


class DatabaseDamaged(StorageError):
    """A database file is unreadable. The next start rebuilds it."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(
            path,
            f"it is damaged ({reason})",
            hint="Restart nanobot. It rebuilds the file and reports any loss.",
        )
        self.cause = reason


class HomeMoved(StorageError):
    """The home was moved or removed: the journal at `path` is not the opened one."""

    exit_code = 74  # EX_IOERR

    def __init__(self, path: Path) -> None:
        super().__init__(
            path.parent.parent,
            "it was moved or removed while nanobot was running",
            hint="Move it back, or set NANOBOT_HOME to the new path. Then start nanobot again.",
        )


class SessionDamaged(StorageError):
    """No line of a conversation's file is readable."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            path,
            "it contains no readable messages",
            hint=(
                "The file was not changed. Send /new in that chat to set it aside and start a new "
                "conversation."
            ),
        )


class UnknownSession(NanobotError):
    """No conversation has this key."""

    def __init__(self, key: str, near: str = "") -> None:
        super().__init__(
            f"there is no session {key!r}",
            hint=f"Did you mean {near!r}?" if near else "List them with `nanobot sessions list`.",
        )


class ExtraMissing(NanobotError):
    """The packages that `what` needs are not installed. The extra `extra` adds them."""

    for_operator = True

    def __init__(self, what: str, extra: str) -> None:
        from nanobot.origin import how_to_install

        super().__init__(f"{what} needs the extra {extra}", hint=how_to_install(extra))


class ProviderError(NanobotError):
    """The model could not answer. `detail` is the server's error text, shortened. `reason` is the
    cause in a few words (`connection refused`). `retry_after` is the requested pause in seconds,
    0.0 if none."""

    for_operator = True

    def __init__(
        self,
        message: str,
        *,
        detail: str = "",
        hint: str = "",
        reason: str = "",
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(message, hint=hint)
        self.detail, self.reason, self.retry_after = detail, reason, retry_after


class ProviderBusy(ProviderError):
    """Rate-limited or overloaded."""


class ProviderUnavailable(ProviderError):
    """Not reached, cut off, or a server error: worth asking again later."""


class ProviderStalled(ProviderUnavailable):
    """Connected, then silent for longer than the timeout."""


class ProviderGarbage(ProviderError):
    """The answer breaks the API's format (HTML with status 200, empty choices, …)."""


class RequestBlamed(ProviderGarbage):
    """A 5xx (`status`) whose text blames the request: a chat template, text that should be JSON, a
    schema."""

    def __init__(self, message: str, *, status: int, detail: str = "", hint: str = "") -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.status = status


class ToolUseFailed(ProviderGarbage):
    """The model called a tool in a form that its server could not parse. `generation` is the
    model's text."""

    def __init__(self, message: str, *, generation: str, detail: str = "") -> None:
        super().__init__(message, detail=detail)
        self.generation = generation


class ProviderRejected(ProviderError):
    """The server will always reject this request. `status` is the HTTP status."""

    def __init__(self, message: str, *, status: int, detail: str = "", hint: str = "") -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.status = status

    @property
    def blames_content(self) -> bool:
        """True if the content may be the cause (a content filter, an odd character), so that
        another request may succeed."""
        return self.status in (400, 422)


class ProviderFiltered(ProviderRejected):
    """The provider withheld the answer because of its content."""

    @property
    def blames_content(self) -> bool:
        """Always True: another request is answered."""
        return True


class ContextTooLong(ProviderRejected):
    """The prompt does not fit the model's context window. `tokens` is the server's count of the
    prompt, `window` its limit; 0 if unknown.

    The caller sets `estimated`, nanobot's own count, and `of_fallback` if the model is a
    fallback."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        detail: str = "",
        hint: str = "",
        tokens: int = 0,
        window: int = 0,
    ) -> None:
        super().__init__(message, status=status, detail=detail, hint=hint)
        self.tokens, self.window = tokens, window
        self.estimated, self.of_fallback = 0, False

    @property
    def blames_content(self) -> bool:
        """Always True: a shorter prompt fits."""
        return True


class BudgetSpent(ProviderError):
    """The owner's limit of `tokens` for today is reached, for all calls or for one `use`. No
    request was sent."""

    def __init__(self, tokens: int, use: str = "") -> None:
        what, key = (f" for {use}", f"uses.{use}") if use else ("", "tokens_per_day")
        super().__init__(
            f"today's {tokens:,} tokens{what} have been used up",
            hint="More tokens are available tomorrow. To change the limit, set"
            f" limits.{key} in config.yaml.",
        )
        self.tokens = tokens


class ToolError(NanobotError):
    """A tool failed. The text is for the model, which can act on it."""


class ToolUnavailable(ToolError):
    """The owner has to change something before the tool works. The text names it."""

    for_operator = True


class CallRefused(ToolError):
    """A `ToolError` whose text is trusted: it holds only nanobot's words, the call's own arguments
    and lines of the caller's memory."""


class PathRefused(ToolError):
    """The path is outside the caller's roots, or not a plain file."""


class WriteConflict(ToolError):
    """The file has changed since the writer read it. Nothing was written."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} has changed, so nothing was written. Read it again")
        self.path = path


class SendError(NanobotError):
    """A channel could not deliver a part. The base class itself means the same as `SendUnknown`."""


class SendLater(SendError):
    """The part certainly did not arrive: the request was not written whole, or the platform
    documents its answer as "not accepted". It is retried with growing pauses for about a day.
    `retry_after` is the platform's shortest pause in seconds."""

    def __init__(self, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class SendUnknown(SendError):
    """The part may have arrived: the request was written, and the platform neither accepted nor
    rejected it (no answer, an unreadable answer, a status of 500 or above, a redirect)."""


class SendRefused(SendError):
    """The platform will never take this part (chat gone, bot blocked, text not accepted)."""


class ChannelOff(NanobotError):
    """A channel cannot work with its settings (a revoked token, …). A restart would not help."""

    for_operator = True


class TurnStopped(NanobotError):
    """The user stopped the running turn. Committed steps are kept."""


def root_cause(error: BaseException) -> str:
    """Return the operating system's reason beneath wrapped errors."""
    cause = error
    while (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    has_own_numbers = type(cause).__module__ in {"ssl", "socket"}
    if isinstance(cause, OSError) and cause.errno and not has_own_numbers:
        return os.strerror(cause.errno).lower()  # asyncio's text names a call and an address
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
