"""The error tree. Each branch is a decision that the code which catches it has to make.

NanobotError                 anything a person should read; carries `hint`, the fix
├── ConfigError              nothing starts; says file, line, key
├── HomeLocked               another process owns this home (exit code 75)
├── StorageError             the disk refused; nothing was lost, try again when it is fixed
├── UnknownSession           a key that names no conversation
├── ExtraMissing             a feature whose packages are installed on request only
├── ProviderError            the model could not answer
│   ├── ProviderBusy         wait `retry_after` seconds, then ask again
│   ├── ProviderUnavailable  network, 5xx: ask again later
│   │   └── ProviderStalled  silence: after the second one a longer timeout is needed
│   ├── ProviderGarbage      an answer that is no answer: ask again, then give up
│   │   ├── RequestBlamed    a 5xx that is the request's fault
│   │   └── ToolUseFailed    a tool call that the server could not parse; carries its text
│   ├── ProviderRejected     asking again will not help (401, 400, 404)
│   ├── ProviderFiltered     the provider withheld the answer
│   ├── ContextTooLong       the prompt must shrink first
│   └── BudgetSpent          the owner's limit for today is reached; nothing was asked
├── ToolError                shown to the model, which can act on it
│   ├── ToolUnavailable      the owner has to change something first
│   ├── PathRefused          outside the caller's roots
│   └── WriteConflict        another writer was faster: read again, then write
├── SendError                a channel could not deliver a part
│   ├── SendLater            it did not arrive: try again
│   ├── SendUnknown          it may have arrived: repeated once
│   └── SendRefused          it never will
├── ChannelOff               a channel stays off until a person fixes its settings
└── TurnStopped              someone stopped this turn; unwind quietly
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

WITHHELD = "it does not work right now, and only the owner can see why"
"""What people other than the owner read of an error that is for the owner."""


class NanobotError(Exception):
    """Something a person should read. `str(error)` is one sentence; `hint` says what to do."""

    exit_code = 1
    for_operator = False
    """Whether it names files, addresses, accounts or settings, which only the owner may read."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def redact_for(self, *, is_owner: bool) -> NanobotError:
        """Return the error as this audience may read it."""
        return self if is_owner or not self.for_operator else NanobotError(WITHHELD)

    def for_people(self) -> str:
        """The message and, where there is one, the fix, on lines of their own."""
        return f"{self}\n  {self.hint}" if self.hint else str(self)


class ConfigError(NanobotError):
    """The configuration cannot be used. `line` is 1-based, 0 where no line is to blame."""

    for_operator = True
    exit_code = 78

    def __init__(
        self, message: str, *, file: str = "", line: int = 0, key: str = "", hint: str = ""
    ) -> None:
        place = f"{file}:{line}: " if file and line else f"{file}: " if file else ""
        super().__init__(f"{place}{f'{key}: ' if key else ''}{message}", hint=hint)
        self.message, self.file, self.line, self.key = message, file, line, key


class HomeLocked(NanobotError):
    """Another process owns this home. `pid` is its process id, 0 if unreadable. `leaving` is the
    state in which it is shutting down or restarting, or empty (see `gateway.lock`)."""

    for_operator = True
    exit_code = 75

    def __init__(self, home: Path, pid: int, leaving: str = "") -> None:
        super().__init__(
            f"another nanobot (pid {pid or 'unknown'}) is using {home}",
            hint="Stop it first, or set NANOBOT_HOME to another home.",
        )
        self.pid, self.leaving = pid, leaving


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
        "It or a parent folder is missing. Put it back, or restart nanobot, which creates the "
        "folders that it needs."
    ),
    **dict.fromkeys(
        (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ELOOP),
        "Something else is there, such as a file in place of a folder. Move it away.",
    ),
    **dict.fromkeys(
        (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENAMETOOLONG),
        "The file system cannot do that. Set NANOBOT_HOME to a short path on a local disk.",
    ),
    **dict.fromkeys(
        (errno.EMFILE, errno.ENFILE, errno.ENOMEM),
        "The machine or the service has too little memory or too few open files. End other "
        f"programs, or raise the limit. {NOTHING_LOST}",
    ),
    **dict.fromkeys(
        (errno.EIO, errno.EUCLEAN, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.ENODEV),
        "The disk or network share reports errors or is missing. Check `dmesg`, mount it "
        "again, and copy nanobot's home.",
    ),
}
"""What a person can do, by the reason that the operating system gives."""


def storage_hint(number: int, path: Path | str) -> str:
    """What a person can do about a failure of this `errno` at `path`."""
    if number in (errno.EACCES, errno.EPERM) and Path(path).is_absolute():
        from shlex import quote

        me, path = os.geteuid(), quote(str(path))
        hint = f"nanobot's user (uid {me}) must own it and its parent folders in the home:"
        return f"{hint} `sudo chown -R {me} {path}`, or `chmod u+rwX {path}`."
    if number in (errno.EACCES, errno.EPERM):
        return "nanobot's user must own it and its parent folders."
    return _HINTS.get(number, NOTHING_LOST)


class StorageError(NanobotError):
    """The disk refused a read or a write of `path`."""

    for_operator = True

    def __init__(self, path: Path | str, reason: str, *, hint: str = NOTHING_LOST) -> None:
        super().__init__(f"cannot use {path}: {reason}", hint=hint)
        self.path, self.reason = path, reason

    @classmethod
    def of(cls, path: Path | str, error: OSError) -> StorageError:
        hint = storage_hint(error.errno or 0, path)
        return cls(path, error.strerror or str(error), hint=hint)


class DatabaseDamaged(StorageError):
    """The file of a database cannot be read. The next start rebuilds it."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(
            path,
            f"it is damaged ({reason})",
            hint="Restart nanobot. It rebuilds the file and reports any loss.",
        )
        self.cause = reason


class HomeMoved(StorageError):
    """The home was moved or removed: the journal at `path` is not the opened one."""

    exit_code = 74

    def __init__(self, path: Path) -> None:
        super().__init__(
            path.parent.parent,
            "it was moved or removed while nanobot was running",
            hint="Move it back, or set NANOBOT_HOME to the new path. Then start nanobot again.",
        )


class SessionDamaged(StorageError):
    """No line of a conversation's file can be read."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            path,
            "no line in it belongs to a session",
            hint=(
                "It was not changed. Send /new in that chat to set it aside and start a new "
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
    """The packages that `what` needs are not installed: they come with `extra` of nanobot."""

    for_operator = True

    def __init__(self, what: str, extra: str) -> None:
        from nanobot.origin import how_to_install

        super().__init__(f"{what} needs the extra {extra}", hint=how_to_install(extra))


class ProviderError(NanobotError):
    """The model could not answer. `detail` is what the other side said, shortened; `retry_after` in
    how many seconds it wants to be asked again, 0.0 where it named none."""

    for_operator = True

    def __init__(
        self, message: str, *, detail: str = "", hint: str = "", retry_after: float = 0.0
    ) -> None:
        super().__init__(message, hint=hint)
        self.detail, self.retry_after = detail, retry_after


class ProviderBusy(ProviderError):
    """Rate-limited or overloaded."""


class ProviderUnavailable(ProviderError):
    """Not reached, cut off, or a server error: worth asking again later."""


class ProviderStalled(ProviderUnavailable):
    """Connected, and then silent for longer than the timeout."""


class ProviderGarbage(ProviderError):
    """The answer is not what the API promises (HTML with status 200, empty choices, …)."""


class RequestBlamed(ProviderGarbage):
    """The server calls it a failure of its own (`status` is 5xx), but its words blame the request:
    a chat template, text that should be JSON, a schema."""

    def __init__(self, message: str, *, status: int, detail: str = "", hint: str = "") -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.status = status


class ToolUseFailed(ProviderGarbage):
    """The model called a tool in a form that its server could not parse. `generation` is the text
    of the model."""

    def __init__(self, message: str, *, generation: str, detail: str = "") -> None:
        super().__init__(message, detail=detail)
        self.generation = generation


class ProviderRejected(ProviderError):
    """The request will be refused however often it is made. `status` is the HTTP status."""

    def __init__(self, message: str, *, status: int, detail: str = "", hint: str = "") -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.status = status

    @property
    def blames_content(self) -> bool:
        """Whether it may lie in what was sent (a content filter, an odd character), so that another
        request is accepted."""
        return self.status in (400, 422)


class ProviderFiltered(ProviderRejected):
    """The provider withheld the answer because of its content."""

    @property
    def blames_content(self) -> bool:
        """Always: another request is answered."""
        return True


class ContextTooLong(ProviderRejected):
    """The prompt does not fit the model's context window. `tokens` is the server's count of the
    prompt, `window` the most that it takes; 0 if it does not say.

    Who sent the prompt sets `estimated`, our own count of it, and `of_fallback` if the model that
    refused is not the chosen one.
    """

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
        """Always: a shorter prompt fits."""
        return True


class BudgetSpent(ProviderError):
    """The model was not asked, because the owner's limit of `tokens` for today is reached, either
    for all calls or for one `use`."""

    def __init__(self, tokens: int, use: str = "") -> None:
        what, key = (f"{use} today", f"uses.{use}") if use else ("today", "tokens_per_day")
        super().__init__(
            f"the {tokens:,} tokens for {what} are used up",
            hint="More are available tomorrow. To change the limit, set"
            f" limits.{key} in config.yaml.",
        )
        self.tokens = tokens


class ToolError(NanobotError):
    """A tool could not do what was asked; the text is for the model, which can act on it."""


class ToolUnavailable(ToolError):
    """The owner has to change something before the tool works; the text says what."""

    for_operator = True


class CallRefused(ToolError):
    """The same, where the text holds nothing but nanobot's words, the call's own arguments and
    lines of the caller's memory: so it brings no foreign text into a conversation."""


class PathRefused(ToolError):
    """A path outside what the caller may touch, or not a plain file."""


class WriteConflict(ToolError):
    """The file is no longer what the writer read; nothing was written."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} has changed, so nothing was written. Read it again")
        self.path = path


class SendError(NanobotError):
    """A channel could not deliver a part. The base class itself means the same as `SendUnknown`."""


class SendLater(SendError):
    """The part certainly did not arrive: the request was not written whole, or the platform
    documents its answer as "not accepted". It is tried again, with growing pauses, for about a day.
    `retry_after`: the shortest pause that the platform asks for, in seconds."""

    def __init__(self, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class SendUnknown(SendError):
    """The part may have arrived: the request was written, and the platform neither accepted nor
    rejected it (no answer, an unreadable answer, a status of 500 or above, a redirect)."""


class SendRefused(SendError):
    """The platform will never take this part (chat gone, bot blocked, text not accepted)."""


class ChannelOff(NanobotError):
    """A channel cannot work with its settings (a token that was revoked, …): starting it again
    would not help."""

    for_operator = True


class TurnStopped(NanobotError):
    """The running turn was stopped by its person; what was committed stands."""
