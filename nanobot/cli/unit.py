"""Unit files for systemd: their place, their text, and the fields of an installed one."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from nanobot.errors import ConfigError, NanobotError, StorageError
from nanobot.gateway import STOP_MARGIN

MARK = "# Written by `nanobot service install`, which overwrites it each time."
"""The first line of every unit file that we write."""
_NETWORK = "Wants=network-online.target\nAfter=network-online.target\n"

_SLOW_SECONDS = 5  # extra seconds for the end of a process on a busy machine

_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - what a private one would hide
_HOMES = ("/home", "/root", "/run/user")

_UNIT = """\
{mark}
# To change it, use `systemctl {scope}edit`.

[Unit]
Description=nanobot, a personal chat agent
{network}StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
{account}Environment={home_variable}
Environment={path_variable}
Environment=PYTHONFAULTHANDLER=1
Environment=NANOBOT_LOG__FORMAT=text
WorkingDirectory=/
# If the home is missing, the service waits for it instead of creating an empty one.
ExecStartPre=:/usr/bin/test -d {home}
ExecStart=:{command}
Restart=always
RestartSec=10
RestartPreventExitStatus={wrong_configuration}
TimeoutStartSec=180
TimeoutStopSec={stop_seconds}
# If the gateway is blocked, SIGABRT ends it, and it logs where it was.
WatchdogSec=90
# The gateway ends its own child processes.
KillMode=mixed
# A command that uses too much memory does not end the service.
OOMPolicy=continue
# Core dumps could contain keys.
LimitCORE=0
UMask=0077
{restrictions}

[Install]
WantedBy={target}
"""

# Every line of the hardening was tested with the sandbox inside it. Left out, because the sandbox
# needs them:
# - RestrictNamespaces, ProtectHostname: bubblewrap creates namespaces and sets a host name.
# - ProcSubset: it reads /proc/sys.
# - ProtectKernelTunables, ProtectKernelLogs: they cover parts of /proc, and many kernels then
#   refuse to mount a whole one. Only root could change what they protect.
# - a filter of AF_NETLINK: it brings up the sandbox's loopback.
# - MemoryDenyWriteExecute: Node.js compiles at run time.
_ALWAYS = """\
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=~@clock @cpu-emulation @module @obsolete @raw-io @reboot @swap
SystemCallErrorNumber=EPERM
"""
_BY_THE_MACHINE = """\
CapabilityBoundingSet=
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectKernelModules=yes
ProtectProc=invisible
"""
"""Restrictions that a user's manager cannot apply."""
_OF_FILES = """\
{own}PrivateTmp={private_tmp}
ProtectSystem=strict
ProtectHome={protect_home}
ReadWritePaths={writable}
"""


class UnitPlace(NamedTuple):
    """The unit `nanobot` or `nanobot-NAME`, of the machine (`system`) or of the user's manager."""

    name: str = ""
    system: bool = False

    @property
    def unit(self) -> str:
        return f"nanobot{f'-{self.name}' if self.name else ''}.service"

    @property
    def file(self) -> Path:
        if self.system:
            return Path("/etc/systemd/system", self.unit)
        named = os.environ.get("XDG_CONFIG_HOME", "")
        base = Path(named) if named.startswith("/") else Path("~/.config").expanduser()
        return base / "systemd" / "user" / self.unit

    @property
    def options(self) -> str:
        """The options that select this unit in a `nanobot service` command."""
        return f"{' --system' if self.system else ''}{f' --name {self.name}' if self.name else ''}"

    def read(self) -> str:
        """Return the text of the unit file, empty if there is none. Raises `StorageError`."""
        try:
            return self.file.read_text("utf-8", "replace")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise StorageError.of(self.file, error) from error


def services_of(home: Path) -> list[UnitPlace]:
    """Return our services for this home: the user's, then the machine's."""
    found = []
    for system in (False, True):
        for file in sorted(UnitPlace(system=system).file.parent.glob("nanobot*.service")):
            name = file.stem.removeprefix("nanobot").removeprefix("-")
            place = UnitPlace(name, system)
            if place.file == file and home_in(place.read()) == home:
                found.append(place)
    return found


def home_in(text: str) -> Path | None:
    """Return the home in a unit file, or None if it is not ours."""
    values = _values("Environment", text) if text.startswith(MARK) else []
    homes = [one.partition("=")[2] for one in values if one.startswith("NANOBOT_HOME=")]
    return Path(homes[0]) if homes else None


def program_in(text: str) -> str:
    """Return the program that a unit file starts, or an empty text."""
    return "".join(_values("ExecStart", text)[-1:]).removeprefix(":")


def _values(key: str, text: str) -> list[str]:
    """Return the first word of each value of a key."""
    found = (shlex.split(one) for one in re.findall(rf"(?m)^{key}=(.*)$", text))
    return [words[0].replace("%%", "%") for words in found if words]


class Unit(NamedTuple):
    """The content of a unit file. `user` is empty for a unit of a user's manager. `readable` and
    `writable` are the folders that it needs, with the home. Without `is_hardened` the file system
    is not restricted."""

    command: tuple[str, ...]
    home: Path
    path: str
    grace_seconds: float
    user: str = ""
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    is_hardened: bool = True

    @property
    def restrictions(self) -> str:
        """The hardening, one line each. Raises `NanobotError`, as `text` does."""
        lines = _ALWAYS + (_BY_THE_MACHINE if self.user else "")
        if self.is_hardened:
            sees_homes = not self.user or self._needs(_HOMES)
            lines += _OF_FILES.format(
                # A user's manager can only restrict the file system in a user namespace.
                own="" if self.user else "PrivateUsers=yes\n",
                private_tmp="no" if self._needs(_TEMPORARY) else "yes",
                protect_home="read-only" if sees_homes else "yes",
                writable=" ".join(_quote(f"-{folder}") for folder in self.writable),
            )
        return lines.rstrip("\n")

    def _needs(self, folders: tuple[str, ...]) -> bool:
        needed = (str(self.home), self.command[0], *self.writable, *self.readable)
        return any(Path(one).is_relative_to(folder) for one in needed for folder in folders)

    @property
    def text(self) -> str:
        """The unit file. Raises `NanobotError` if a path has a control character."""
        return _UNIT.format(
            mark=MARK,
            scope="" if self.user else "--user ",
            # A user's manager does not know the network's state.
            network=_NETWORK if self.user else "",
            account=f"User={self.user}\n" if self.user else "",
            home_variable=_quote(f"NANOBOT_HOME={self.home}"),
            path_variable=_quote(f"PATH={self.path}"),
            home=_quote(str(self.home)),
            command=" ".join(map(_quote, self.command)),
            wrong_configuration=ConfigError.exit_code,
            stop_seconds=round(self.grace_seconds + STOP_MARGIN) + _SLOW_SECONDS,
            restrictions=self.restrictions,
            target="multi-user.target" if self.user else "default.target",
        )


def _quote(text: str) -> str:
    """Quote a word for a unit file. Raises `NanobotError` for unprintable text: a line break would
    begin a new entry, which root obeys, and the paths come from a file that root does not own."""
    if not text.isprintable():
        raise NanobotError(f"a unit file cannot contain the name {text!r}")
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"' if set(text) & set(" \\\"';") else text
