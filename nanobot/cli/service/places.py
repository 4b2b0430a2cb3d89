"""Where a service is: its unit file, the account that it runs as, and its home."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nanobot.cli.service.unit import home_in
from nanobot.config import home_folder
from nanobot.errors import NanobotError, StorageError
from nanobot.tilde import expanded

DEDICATED = "nanobot"
"""The account of a service of the machine where nobody names another."""

_DEDICATED_FOLDER = Path("/var/lib/nanobot")
_MACHINE = Path("/etc/systemd/system")
_LINGER = Path("/var/lib/systemd/linger")


@dataclass(frozen=True, slots=True)
class Choice:
    """What the command line says; empty where it says nothing."""

    home: str = ""
    system: bool = False
    name: str = ""

    @property
    def unit(self) -> str:
        """The unit's name, without `.service`."""
        return f"nanobot-{self.name}" if self.name else "nanobot"


@dataclass(frozen=True, slots=True)
class Account:
    """Who a service runs as. `uid` is -1 where the account does not exist yet."""

    name: str
    uid: int
    gid: int
    folder: Path

    @property
    def is_missing(self) -> bool:
        """Whether it is to be made first."""
        return self.uid < 0


@dataclass(frozen=True, slots=True)
class Place:
    """The unit `unit`, in `file`, of the machine or of the user."""

    unit: str
    system: bool
    file: Path

    @classmethod
    def of(cls, choice: Choice, environ: Mapping[str, str]) -> Place:
        """Where the command line puts it."""
        folder = _MACHINE if choice.system else _own_units(environ)
        return cls(choice.unit, choice.system, folder / f"{choice.unit}.service")

    @classmethod
    def found(cls, choice: Choice, environ: Mapping[str, str]) -> Place:
        """Where it is: the user's own, else the machine's, where the line leaves it open."""
        own, machine = cls.of(choice, environ), _MACHINE / f"{choice.unit}.service"
        if choice.system or own.file.exists() or not machine.exists():
            return own
        return cls(choice.unit, system=True, file=machine)

    @property
    def service(self) -> str:
        """The unit's name in full."""
        return f"{self.unit}.service"

    @property
    def options(self) -> str:
        """What a `nanobot service` command needs to mean this one."""
        name = self.unit.removeprefix("nanobot").removeprefix("-")
        words = ("--system" if self.system else "", f"--name {name}" if name else "")
        return "".join(f" {word}" for word in words if word)

    def read(self) -> str:
        """The unit file; empty where there is none. Raises `StorageError`."""
        try:
            return self.file.read_text("utf-8", "replace")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise StorageError.of(self.file, error) from error

    def home(self) -> Path | None:
        """The home of the installed one; None where there is none of ours."""
        return home_in(self.read())


def lingers(user: str) -> bool:
    """Whether the services of a user run when they are not logged in."""
    return (_LINGER / user).exists()


def account(system: bool, name: str) -> Account:
    """The account `name`, by default our own, or for the machine the dedicated one."""
    if not system:
        if name:
            raise NanobotError("--user goes with --system only")
        us = pwd.getpwuid(os.geteuid())
        return Account(us.pw_name, us.pw_uid, us.pw_gid, Path(us.pw_dir))
    try:
        found = pwd.getpwnam(name or DEDICATED)
    except KeyError:
        if name not in ("", DEDICATED):
            hint = f"Without --user it runs as {DEDICATED}, who is made for it."
            raise NanobotError(f"there is no user {name!r}", hint=hint) from None
        return Account(DEDICATED, -1, -1, _DEDICATED_FOLDER)
    return Account(found.pw_name, found.pw_uid, found.pw_gid, Path(found.pw_dir))


def home_for(choice: Choice, who: Account, environ: Mapping[str, str]) -> Path:
    """The home of the service: the one that was named, else `.nanobot` of its account; for one's
    own the home of every other command."""
    named = choice.home or environ.get("NANOBOT_HOME", "").strip()
    if named:
        home = expanded(named).absolute()
    else:
        home = who.folder / ".nanobot" if choice.system else home_folder(environ)
    home = Path(os.path.normpath(home))  # systemd takes no steps up
    if not str(home).isprintable():
        raise NanobotError(f"a unit file cannot hold the name of the folder {str(home)!r}")
    return home


def _own_units(environ: Mapping[str, str]) -> Path:
    named = environ.get("XDG_CONFIG_HOME", "")
    base = Path(named) if named.startswith("/") else Path("~/.config").expanduser()
    return base / "systemd" / "user"
