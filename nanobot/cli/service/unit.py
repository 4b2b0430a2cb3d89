"""The unit file: values in, text out.

Every line of the hardening was tried with the sandbox inside it. Left out on purpose is what the
sandbox cannot work in: `RestrictNamespaces` and `ProtectHostname` (bubblewrap makes namespaces and
names its own), `ProcSubset` (it reads `/proc/sys`), `ProtectKernelTunables` and `ProtectKernelLogs`
(they cover parts of `/proc`, and many kernels then let nobody mount a whole one; what they protect
belongs to root, which nanobot is not), an address family less (`AF_NETLINK` brings up the loopback
of the sandbox), and `MemoryDenyWriteExecute` (Node.js compiles as it runs).
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from nanobot.errors import NanobotError

MARK = "# Written by `nanobot service install`, which writes it anew each time."
"""The first line of every unit file of ours."""

RESTART_SECONDS = 10
_WATCHDOG_SECONDS = 90
_START_SECONDS = 180
_BESIDE_GRACE_SECONDS = 25
"""What stopping may take beside the grace of running turns."""

_BAD_CONFIGURATION = 78
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - what a private one would hide

_ALWAYS = (
    ("NoNewPrivileges", "yes"),
    ("LockPersonality", "yes"),
    ("RestrictRealtime", "yes"),
    ("RestrictSUIDSGID", "yes"),
    ("RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6 AF_NETLINK"),
    ("SystemCallArchitectures", "native"),
    ("SystemCallFilter", "~@clock @cpu-emulation @module @obsolete @raw-io @reboot @swap"),
    ("SystemCallErrorNumber", "EPERM"),
)
_BY_THE_MACHINE = (
    ("CapabilityBoundingSet", ""),
    ("PrivateDevices", "yes"),
    ("ProtectClock", "yes"),
    ("ProtectControlGroups", "yes"),
    ("ProtectKernelModules", "yes"),
    ("ProtectProc", "invisible"),
)
"""What the manager of one user has not the power to do."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What a unit file says. Paths are absolute; `text` raises `NanobotError` where one holds a
    control character.

    `user` is empty for a unit of the user's own manager. `writable` are the folders that may be
    changed, the home among them; `homes` says whether folders of people (`/home`, `/root`) can be
    read. Without `shut_in` the file system is as it is for the user.
    """

    name: str
    command: tuple[str, ...]
    home: Path
    path: str
    grace_seconds: float
    user: str = ""
    writable: tuple[str, ...] = ()
    homes: bool = True
    shut_in: bool = True

    @property
    def text(self) -> str:
        """The whole file."""
        system = bool(self.user)
        edit = f"systemctl {'' if system else '--user '}edit {self.name}"
        sections = (
            ("Unit", self._unit()),
            ("Service", (*self._service(), *self.hardening)),
            ("Install", (("WantedBy", "multi-user.target" if system else "default.target"),)),
        )
        blocks = [f"{MARK}\n# What you want otherwise belongs beside it: {edit}\n"]
        for name, entries in sections:
            blocks.append(f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in entries))
        return "\n".join(blocks)

    @property
    def hardening(self) -> tuple[tuple[str, str], ...]:
        """What keeps nanobot in, as keys and values."""
        machine = _BY_THE_MACHINE if self.user else ()
        return (*_ALWAYS, *machine, *(self._file_system() if self.shut_in else ()))

    def _file_system(self) -> tuple[tuple[str, str], ...]:
        # Only in a world of its own may a user's manager change what a unit sees of the files.
        own = () if self.user else (("PrivateUsers", "yes"),)
        needed = (self.home, Path(self.command[0]), *map(Path, self.writable))
        is_shared = any(path.is_relative_to(folder) for path in needed for folder in _TEMPORARY)
        return (
            *own,
            ("PrivateTmp", "no" if is_shared else "yes"),
            ("ProtectSystem", "strict"),
            ("ProtectHome", "read-only" if self.homes else "yes"),
            ("ReadWritePaths", " ".join(quoted(f"-{folder}") for folder in self.writable)),
        )

    def _unit(self) -> tuple[tuple[str, str], ...]:
        # The manager of one user knows nothing of the network's state.
        network = (("Wants", "network-online.target"), ("After", "network-online.target"))
        return (
            ("Description", "nanobot, a personal chat agent"),
            *(network if self.user else ()),
            ("StartLimitIntervalSec", "0"),
        )

    def _service(self) -> tuple[tuple[str, str], ...]:
        return (
            ("Type", "notify"),
            ("NotifyAccess", "main"),
            *((("User", self.user),) if self.user else ()),
            ("Environment", quoted(f"NANOBOT_HOME={self.home}")),
            ("Environment", quoted(f"PATH={self.path}")),
            # A blocked gateway is ended by SIGABRT, and says then where it was.
            ("Environment", "PYTHONFAULTHANDLER=1"),
            ("ExecStart", ":" + " ".join(map(quoted, self.command))),
            ("Restart", "always"),
            ("RestartSec", str(RESTART_SECONDS)),
            ("RestartPreventExitStatus", str(_BAD_CONFIGURATION)),
            ("TimeoutStartSec", str(_START_SECONDS)),
            ("TimeoutStopSec", str(round(self.grace_seconds) + _BESIDE_GRACE_SECONDS)),
            ("WatchdogSec", str(_WATCHDOG_SECONDS)),
            ("KillMode", "mixed"),  # the gateway ends what it has started
            ("OOMPolicy", "continue"),  # a command that took too much memory is not the service
            ("LimitCORE", "0"),  # keys stay off the disk
            ("UMask", "0077"),
        )


def quoted(text: str) -> str:
    """A word as unit files have it. Raises `NanobotError` for what they cannot hold: a line's end
    would begin an entry of its own, which root obeys, and paths come from a file that is not
    root's."""
    if not text.isprintable():
        raise NanobotError(f"a unit file cannot hold the name {text!r}")
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"' if set(text) & set(" \\\"';") else text


def home_in(text: str) -> Path | None:
    """The home that a unit file of ours is for; None where the file is not ours."""
    if not text.startswith(MARK):
        return None
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key == "Environment":
            name, _, home = "".join(shlex.split(value)).replace("%%", "%").partition("=")
            if name == "NANOBOT_HOME":
                return Path(home)
    return None
