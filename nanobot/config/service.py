"""The settings of nanobot as a service: its log, its HTTP server, how its health is told, backups,
and what is not kept for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator

from nanobot.config.values import ApiKey, Count, Fault, HostName, Strict, Unfit
from nanobot.errors import NanobotError
from nanobot.text import expanduser

Port = Annotated[int, Field(ge=1, le=65_535)]
_ELSEWHERE = "Name a folder elsewhere, best on another disk."
WholeFrom0 = Annotated[int, Field(ge=0)]


class LogSettings(Strict):
    """The log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important lines that are written."""
    format: Literal["auto", "text", "json"] = "auto"
    """What the gateway writes to standard error: `text` for people, `json` with one object a line
    for machines; `auto` is `text` in a terminal and `json` elsewhere."""
    file: bool = True
    """Whether the gateway writes its log to `logs/nanobot.log` as well, which `nanobot logs`
    reads."""
    max_megabytes: Count = 10
    """Megabytes after which a new log file is begun."""
    keep: Count = 5
    """Log files that are kept beside the current one."""


class HttpSettings(Strict):
    """The HTTP server, which runs only where a channel needs one (a webhook)."""

    host: HostName = "127.0.0.1"
    """The address that it listens on; the default is reached from this machine alone, `0.0.0.0`
    from everywhere."""
    port: Port = 8087
    """The port that it listens on."""
    public_hosts: tuple[HostName, ...] = ()
    """Host names under which a reverse proxy passes requests on, such as `bot.example.org`, beside
    those of the channels' own webhook addresses. Requests for other names are refused; addresses
    and `localhost` always work."""


class HealthSettings(Strict):
    """Telling other programs how nanobot is. It holds no text of conversations."""

    enabled: bool = False
    """Whether `/health` is served over HTTP: status 200 while nanobot works, 503 where it does
    not."""
    host: HostName = "127.0.0.1"
    """The address that it is served on; the default is reached from this machine alone."""
    port: Port = 8088
    """The port that it is served on."""
    metrics: bool = False
    """Whether `/metrics` is served beside it, for Prometheus."""
    token: ApiKey = SecretStr("")
    """What whoever asks has to send, as `Authorization: Bearer …`; empty: nothing, which only the
    default address may have."""

    def faults(self, home: Path) -> Iterator[Fault]:
        if self.enabled and not self.token.get_secret_value() and not _is_of_here(self.host):
            yield Fault(
                ("token",),
                "is required where other machines can ask",
                "Write `token: ${HEALTH_TOKEN}` and set that variable, or leave `health.host` out.",
            )


class BackupSettings(Strict):
    """Backups that nanobot makes by itself. `nanobot backup` makes one at any time."""

    schedule: str = ""
    """When: the five fields of cron such as `"30 3 * * *"`; empty: never."""
    folder: str = ""
    """Where they go, best on another disk; empty: `backups/` in nanobot's home."""
    keep: Count = 7
    """How many are kept; the oldest go first."""
    recipient: str = ""
    """A public key of age (`age1…`) that they are encrypted for; empty: they are not encrypted.
    `nanobot backup keygen` makes one with its secret half."""
    media: bool = True
    """Whether files that were sent and received are in them."""

    def faults(self, home: Path) -> Iterator[Fault]:
        if not self.folder:
            return
        try:
            folder = self.place(home)
        except NanobotError as error:
            yield Fault(("folder",), f"cannot be used: {error}", error.hint)
            return
        if folder.is_relative_to((home / "workspace").resolve()):
            yield self.exposed()
        elif folder.is_relative_to(home.resolve()) and not folder.is_relative_to(
            (home / "backups").resolve()
        ):
            reason = "is in nanobot's own folder, which is backed up"
            yield Fault(("folder",), reason, _ELSEWHERE)

    def place(self, home: Path) -> Path:
        """Where they go. Raises `NanobotError` for a user who is not known."""
        return (home / expanduser(self.folder or "backups")).resolve()

    def exposed(self) -> Fault:
        """What is wrong where programs of the agent see them."""
        return Fault(("folder",), "would show the agent all secrets", _ELSEWHERE)

    @field_validator("schedule")
    @classmethod
    def _usable_schedule(cls, text: str) -> str:
        text = " ".join(text.split())
        if not text:
            return ""
        from nanobot.cron.schedule import Cron, ScheduleError, parse  # only where one is set

        hint = 'Write it like "30 3 * * *", which is each night at half past three.'
        try:
            usable = isinstance(parse(text), Cron)
        except ScheduleError:
            usable = False
        if not usable:
            raise Unfit("must be the five fields of cron", hint)
        return text

    @field_validator("recipient")
    @classmethod
    def _usable_recipient(cls, text: str) -> str:
        text = text.strip()
        if text and not (text.startswith("age1") and text.isalnum()):
            hint = "`nanobot backup keygen` makes a pair; the part that begins with age1 goes here."
            raise Unfit("must be a public key of age", hint)
        return text


class RetentionSettings(Strict):
    """What is not kept for ever. Conversations and memory always are. 0: no limit."""

    media_days: WholeFrom0 = 0
    """Days for which files that were sent and received are kept."""
    media_megabytes: WholeFrom0 = 0
    """Megabytes that they may take together; beyond it those used longest ago go."""
    spill_days: WholeFrom0 = 30
    """Days for which tool results that were too long for the model are kept whole."""
    audit_days: WholeFrom0 = 0
    """Days for which the audit log goes back at least."""
    disk_reserve_megabytes: WholeFrom0 = 200
    """Megabytes of free disk below which nothing new is taken in until there is room again;
    messages wait at their platforms, and you are told."""


def _is_of_here(host: str) -> bool:
    """Whether only this machine can reach that address."""
    if host == "localhost":
        return True
    from ipaddress import ip_address  # only where another address is set

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
