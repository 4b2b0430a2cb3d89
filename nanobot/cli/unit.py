"""Units of systemd that run nanobot: where they are, what they say, what an installed one says.

Every line of the hardening was tried with the sandbox inside it. Left out on purpose is what the
sandbox cannot work in: `RestrictNamespaces` and `ProtectHostname` (bubblewrap makes namespaces and
names its own), `ProcSubset` (it reads `/proc/sys`), `ProtectKernelTunables` and
`ProtectKernelLogs` (they cover parts of `/proc`, and many kernels then refuse to mount a whole
one; what they protect belongs to root, which nanobot is not), an address family less
(`AF_NETLINK` brings up the loopback of the sandbox), and `MemoryDenyWriteExecute` (Node.js
compiles as it runs).
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from nanobot.errors import ConfigError, NanobotError, StorageError
from nanobot.gateway import STOP_MARGIN

MARK = "# Written by `nanobot service install`, which overwrites it each time."
"""The first line of every unit file of ours."""
_NETWORK = "Wants=network-online.target\nAfter=network-online.target\n"

_SLOW_SECONDS = 5
"""Extra time for the end of a process on a busy machine."""

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
# If the home is missing, the start waits for it and does not make an empty one.
ExecStartPre=:/usr/bin/test -d {home}
ExecStart=:{command}
Restart=always
RestartSec=10
RestartPreventExitStatus={wrong_configuration}
TimeoutStartSec=180
TimeoutStopSec={stop_seconds}
# SIGABRT ends a blocked gateway, which then logs its position.
WatchdogSec=90
# The gateway ends its own child processes.
KillMode=mixed
# A command that uses too much memory does not end the service.
OOMPolicy=continue
# Keys stay off the disk.
LimitCORE=0
UMask=0077
{restrictions}

[Install]
WantedBy={target}
"""

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
"""What a user's own manager has no power to do."""
_OF_FILES = """\
{own}PrivateTmp={private_tmp}
ProtectSystem=strict
ProtectHome={protect_home}
ReadWritePaths={writable}
"""


class UnitPlace(NamedTuple):
    """The unit `nanobot`, or `nanobot-NAME`, of the machine (`system`) or of the user's manager."""

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
        """The options that a `nanobot service` command needs to mean this one."""
        return f"{' --system' if self.system else ''}{f' --name {self.name}' if self.name else ''}"

    def read(self) -> str:
        """The text of the unit file; empty where there is none. Raises `StorageError`."""
        try:
            return self.file.read_text("utf-8", "replace")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise StorageError.of(self.file, error) from error


def services_of(home: Path) -> list[UnitPlace]:
    """The services of ours that run this home: the user's, and those of the machine."""
    found = []
    for system in (False, True):
        for file in sorted(UnitPlace(system=system).file.parent.glob("nanobot*.service")):
            name = file.stem.removeprefix("nanobot").removeprefix("-")
            place = UnitPlace(name, system)
            if place.file == file and home_in(place.read()) == home:
                found.append(place)
    return found


def home_in(text: str) -> Path | None:
    """The home that a unit file is for; None where it is not ours."""
    values = _values("Environment", text) if text.startswith(MARK) else []
    homes = [one.partition("=")[2] for one in values if one.startswith("NANOBOT_HOME=")]
    return Path(homes[0]) if homes else None


def program_in(text: str) -> str:
    """What a unit file starts; empty for nothing."""
    return "".join(_values("ExecStart", text)[-1:]).removeprefix(":")


def _values(key: str, text: str) -> list[str]:
    """The first word of each value of a key."""
    found = (shlex.split(one) for one in re.findall(rf"(?m)^{key}=(.*)$", text))
    return [words[0].replace("%%", "%") for words in found if words]


class Unit(NamedTuple):
    """What a unit file is to say. `user` is empty for a unit of the user's own manager; `readable`
    and `writable` are the folders that it needs, the home among them. Without `is_hardened` the
    file system is as it is for the user."""

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
        """What restricts nanobot, a line each. Raises `NanobotError`, as `text` does."""
        lines = _ALWAYS + (_BY_THE_MACHINE if self.user else "")
        if self.is_hardened:
            sees_homes = not self.user or self._needs(_HOMES)
            lines += _OF_FILES.format(
                # A user's manager may restrict the file system only within a user namespace.
                own="" if self.user else "PrivateUsers=yes\n",
                private_tmp="no" if self._needs(_TEMPORARY) else "yes",
                protect_home="read-only" if sees_homes else "yes",
                writable=" ".join(_quoted(f"-{folder}") for folder in self.writable),
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
            # A user's manager knows nothing of the network's state.
            network=_NETWORK if self.user else "",
            account=f"User={self.user}\n" if self.user else "",
            home_variable=_quoted(f"NANOBOT_HOME={self.home}"),
            path_variable=_quoted(f"PATH={self.path}"),
            home=_quoted(str(self.home)),
            command=" ".join(map(_quoted, self.command)),
            wrong_configuration=ConfigError.exit_code,
            stop_seconds=round(self.grace_seconds + STOP_MARGIN) + _SLOW_SECONDS,
            restrictions=self.restrictions,
            target="multi-user.target" if self.user else "default.target",
        )


def _quoted(text: str) -> str:
    """A word as unit files have it. Raises `NanobotError` for what they cannot hold: a line's end
    would begin an entry of its own, which root obeys, and paths come from a file that is not
    root's."""
    if not text.isprintable():
        raise NanobotError(f"a unit file cannot contain the name {text!r}")
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"' if set(text) & set(" \\\"';") else text
