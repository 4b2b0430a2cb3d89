"""The unit file: values in, text out.

Every line of the hardening was tried with the sandbox inside it. Left out on purpose is what the
sandbox cannot work in: `RestrictNamespaces` and `ProtectHostname` (bubblewrap makes namespaces and
names its own), `ProcSubset` (it reads `/proc/sys`), `ProtectKernelTunables` and `ProtectKernelLogs`
(they cover parts of `/proc`, and many kernels then let nobody mount a whole one; what they protect
belongs to root, which nanobot is not), an address family less (`AF_NETLINK` brings up the loopback
of the sandbox), and `MemoryDenyWriteExecute` (Node.js compiles as it runs).

Where a service is: its unit file, the account that it runs as, and its home.

From the command line and the configuration to the unit that is to be. Changes nothing.
"""

from __future__ import annotations

import os
import pwd
import shlex
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot.config import home_folder
from nanobot.errors import ConfigError, NanobotError, StorageError
from nanobot.text import expanduser

if TYPE_CHECKING:
    from nanobot.config.settings import Settings

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
        home = expanduser(named).absolute()
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


_STANDARD = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_HOMES = tuple(map(Path, ("/home", "/root", "/run/user")))
_OURS = ("NANOBOT_HOME", "NANOBOT_DEBUG")


@dataclass(frozen=True, slots=True)
class Plan:
    """The unit, where it goes, who it runs as, and what its owner should know beforehand."""

    unit: Unit
    place: Place
    account: Account
    warnings: tuple[str, ...]


def plan(choice: Choice, user: str, environ: Mapping[str, str] = os.environ) -> Plan:
    """What `nanobot service install` is to do. Raises `ConfigError` where the gateway would not
    start, `NanobotError` where a unit file cannot say it."""
    who = account(choice.system, user)
    home = home_for(choice, who, environ)
    path = service_path(environ.get("PATH", ""))
    settings = _settings(home, {"HOME": str(who.folder), "PATH": path}, environ)
    command = gateway_command(Path(sys.executable))
    read = [Path(command[0]), Path(sys.prefix), Path(sys.base_prefix), home, *_read(settings)]
    own = (who.folder,) if choice.system and who.name == DEDICATED else ()
    unit = Unit(
        name=choice.unit,
        command=command,
        home=home,
        path=path,
        grace_seconds=settings.agent.shutdown_grace_seconds,
        user=who.name if choice.system else "",
        writable=_without_inner((home, *own, *_written(settings, who))),
        homes=not choice.system or any(map(_is_in_homes, read)),
        shut_in=not _lets_commands_out(settings),
    )
    _ = unit.text  # raises before anything is changed
    return Plan(unit, Place.of(choice, environ), who, tuple(_warnings(choice, who, environ)))


def gateway_command(python: Path) -> tuple[str, ...]:
    """What starts the gateway of this installation, whatever the folder it is started in."""
    script = python.parent / "nanobot"
    if os.access(script, os.X_OK):
        return (str(script), "gateway")
    return (str(python), "-P", "-m", "nanobot", "gateway")


def service_path(path: str) -> str:
    """The folders of programs: those of the person's `PATH` that nobody else may write to, so that
    Node.js and MCP servers are found, and the usual ones."""
    found = [folder for folder in path.split(":") if folder.isprintable() and _is_safe(folder)]
    return ":".join(dict.fromkeys((*found, *_STANDARD)))


def _is_safe(folder: str) -> bool:
    if not folder.startswith("/"):
        return False
    try:
        mode = Path(folder).stat().st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) and not mode & stat.S_IWOTH


def _settings(home: Path, bare: Mapping[str, str], environ: Mapping[str, str]) -> Settings:
    """What a service will read, which has nothing of the shell's environment."""
    from nanobot.config.load import load_settings

    try:
        return load_settings(home, bare)
    except ConfigError as error:
        try:
            load_settings(home, environ)
        except ConfigError:
            raise error from None
        hint = f"Your shell has what is missing, and a service does not: write it into {home}"
        raise ConfigError(str(error), hint=f"{hint}/secrets.env.") from error


def _read(settings: Settings) -> Iterator[Path]:
    """Folders that the agent's programs see."""
    yield from map(Path, settings.tools.exec.paths)
    for server in settings.mcp.servers.values():
        yield from map(Path, (*server.paths, *server.writable))


def _written(settings: Settings, who: Account) -> Iterator[Path]:
    """Folders outside of the home that may be changed, as the account of the service sees them."""
    if settings.backup.folder:
        folder = settings.home / expanduser(settings.backup.folder, str(who.folder))
        yield Path(os.path.normpath(folder))  # systemd takes no steps up
    for server in settings.mcp.servers.values():
        if server.enabled:
            yield from map(Path, server.writable)


def _lets_commands_out(settings: Settings) -> bool:
    """Whether the owner wants commands to do all that the account may."""
    tools = settings.tools.exec
    servers = settings.mcp.servers.values()
    return (tools.enabled and tools.sandbox == "none") or any(
        server.enabled and server.command and not server.sandbox for server in servers
    )


def _is_in_homes(path: Path) -> bool:
    return any(path.is_relative_to(home) for home in _HOMES)


def _without_inner(folders: tuple[Path, ...]) -> tuple[str, ...]:
    kept = [
        folder
        for folder in dict.fromkeys(folders)
        if not any(folder != other and folder.is_relative_to(other) for other in folders)
    ]
    return tuple(map(str, kept))


def _warnings(choice: Choice, who: Account, environ: Mapping[str, str]) -> Iterator[str]:
    names = [n for n in sorted(environ) if n.startswith("NANOBOT_") and n not in _OURS]
    if names:
        yield (
            f"{', '.join(names)} of your shell will not hold for the service: write it into "
            "config.yaml"
        )
    if who.uid == 0:
        option = "--user NAME" if choice.system else "--system"
        yield f"it runs as root; `nanobot service install {option}` gives it an account of its own"
