"""The unit file of a service, where it lies, who runs it, and what the configuration asks of it.

Nothing here changes anything. Every line of the hardening was tried with the sandbox inside it.
Left out on purpose is what the sandbox cannot work in: `RestrictNamespaces` and `ProtectHostname`
(bubblewrap makes namespaces and names its own), `ProcSubset` (it reads `/proc/sys`),
`ProtectKernelTunables` and `ProtectKernelLogs` (they cover parts of `/proc`, and many kernels then
let nobody mount a whole one; what they protect belongs to root, which nanobot is not), an address
family less (`AF_NETLINK` brings up the loopback of the sandbox), and `MemoryDenyWriteExecute`
(Node.js compiles as it runs).
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from nanobot.config import home_folder
from nanobot.errors import ConfigError, NanobotError, StorageError
from nanobot.text import expanduser

if TYPE_CHECKING:
    from nanobot.config.settings import Settings

MARK = "# Written by `nanobot service install`, which writes it anew each time."
"""The first line of every unit file of ours."""

RESTART_SECONDS = 10
_BESIDE_GRACE_SECONDS = 25
"""What stopping may take beside the grace of running turns."""

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


class Unit(Struct, frozen=True):
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
        """The whole file. A blocked gateway is ended by SIGABRT, and says then where it was; it
        ends what it has started itself (`KillMode`); a command of its own that took too much memory
        is not the service (`OOMPolicy`); keys stay off the disk (`LimitCORE`)."""
        edit = f"systemctl {'' if self.user else '--user '}edit {self.name}"
        # The manager of one user knows nothing of the network's state.
        network = "Wants=network-online.target\nAfter=network-online.target\n" if self.user else ""
        user = f"User={self.user}\n" if self.user else ""
        hardening = "\n".join(f"{key}={value}" for key, value in self.hardening)
        return f"""\
{MARK}
# What you want otherwise belongs beside it: {edit}

[Unit]
Description=nanobot, a personal chat agent
{network}StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
{user}Environment={_quoted(f"NANOBOT_HOME={self.home}")}
Environment={_quoted(f"PATH={self.path}")}
Environment=PYTHONFAULTHANDLER=1
ExecStart=:{" ".join(map(_quoted, self.command))}
Restart=always
RestartSec={RESTART_SECONDS}
RestartPreventExitStatus={ConfigError.exit_code}
TimeoutStartSec=180
TimeoutStopSec={round(self.grace_seconds) + _BESIDE_GRACE_SECONDS}
WatchdogSec=90
KillMode=mixed
OOMPolicy=continue
LimitCORE=0
UMask=0077
{hardening}

[Install]
WantedBy={"multi-user.target" if self.user else "default.target"}
"""

    @property
    def hardening(self) -> tuple[tuple[str, str], ...]:
        """What keeps nanobot in, as keys and values."""
        entries = (*_ALWAYS, *(_BY_THE_MACHINE if self.user else ()))
        if not self.shut_in:
            return entries
        # Only in a world of its own may a user's manager change what a unit sees of the files.
        own = () if self.user else (("PrivateUsers", "yes"),)
        needed = (self.home, Path(self.command[0]), *map(Path, self.writable))
        is_shared = any(path.is_relative_to(folder) for path in needed for folder in _TEMPORARY)
        return (
            *entries,
            *own,
            ("PrivateTmp", "no" if is_shared else "yes"),
            ("ProtectSystem", "strict"),
            ("ProtectHome", "read-only" if self.homes else "yes"),
            ("ReadWritePaths", " ".join(_quoted(f"-{folder}") for folder in self.writable)),
        )


def _quoted(text: str) -> str:
    """A word as unit files have it. Raises `NanobotError` for what they cannot hold: a line's end
    would begin an entry of its own, which root obeys, and paths come from a file that is not
    root's."""
    if not text.isprintable():
        raise NanobotError(f"a unit file cannot hold the name {text!r}")
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"' if set(text) & set(" \\\"';") else text


def home_in(text: str) -> Path | None:
    """The home that a unit file of ours is for; None where the file is not ours."""
    values = re.findall(r"(?m)^Environment=(.*)$", text) if text.startswith(MARK) else []
    for value in values:
        name, _, home = "".join(shlex.split(value)).replace("%%", "%").partition("=")
        if name == "NANOBOT_HOME":
            return Path(home)
    return None


_MACHINE = Path("/etc/systemd/system")


class Place(Struct, frozen=True):
    """The unit `unit` (without `.service`), in `file`, of the machine or of the user."""

    unit: str
    system: bool
    file: Path

    @classmethod
    def of(cls, name: str = "", *, system: bool = False) -> Place:
        """Where the command line puts it: one of the machine or our own, perhaps with a name."""
        unit = f"nanobot-{name}" if name else "nanobot"
        named = os.environ.get("XDG_CONFIG_HOME", "")
        base = Path(named) if named.startswith("/") else Path("~/.config").expanduser()
        folder = _MACHINE if system else base / "systemd" / "user"
        return cls(unit, system, folder / f"{unit}.service")

    @classmethod
    def found(cls, name: str = "", *, system: bool = False) -> Place:
        """Where it is: the user's own, else the machine's, where the line leaves it open."""
        own, machine = cls.of(name, system=system), cls.of(name, system=True)
        return machine if machine.file.exists() and not own.file.exists() else own

    @property
    def service(self) -> str:
        """The unit's name in full."""
        return f"{self.unit}.service"

    @property
    def options(self) -> str:
        """What a `nanobot service` command needs to mean this one."""
        name = self.unit.removeprefix("nanobot").removeprefix("-")
        return f"{' --system' if self.system else ''}{f' --name {name}' if name else ''}"

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

    def program(self) -> Path | None:
        """What the installed one starts."""
        started = re.findall(r"(?m)^ExecStart=:?(.*)$", self.read())
        words = shlex.split(started[-1]) if started else []
        return Path(words[0].replace("%%", "%")) if words else None


Account = pwd.struct_passwd
"""Who a service runs as; `pw_uid` is -1 where the account does not exist yet."""

DEDICATED = "nanobot"
"""The account of a service of the machine where nobody names another."""


def lingers(name: str) -> bool:
    """Whether services of an account's own run when it is not logged in."""
    return Path("/var/lib/systemd/linger", name).exists()


def account(system: bool = False, name: str = "") -> Account:
    """The account `name`, by default our own, or for the machine the dedicated one."""
    if not system:
        if name:
            raise NanobotError("--user goes with --system only")
        return pwd.getpwuid(os.geteuid())
    try:
        return pwd.getpwnam(name or DEDICATED)
    except KeyError:
        if name in ("", DEDICATED):
            return Account((DEDICATED, "x", -1, -1, "", "/var/lib/nanobot", ""))  # to be made
        hint = f"Without --user it runs as {DEDICATED}, who is made for it."
        raise NanobotError(f"there is no user {name!r}", hint=hint) from None


_STANDARD = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_HOMES = tuple(map(Path, ("/home", "/root", "/run/user")))


def planned_unit(place: Place, who: Account, named_home: str) -> Unit:
    """The unit as it is to be. Raises `ConfigError` where the gateway would not start,
    `NanobotError` where a unit file cannot say it."""
    named, folder = named_home or os.environ.get("NANOBOT_HOME", "").strip(), Path(who.pw_dir)
    usual = folder / ".nanobot" if place.system else home_folder()
    # systemd takes no steps up
    home = Path(os.path.normpath(expanduser(named).absolute() if named else usual))
    path = service_path(os.environ.get("PATH", ""))
    settings = _settings(home, {"HOME": who.pw_dir, "PATH": path})
    command = gateway_command(Path(sys.executable))
    tools, servers = settings.tools.exec, settings.mcp.servers.values()
    read = [Path(command[0]), Path(sys.prefix), Path(sys.base_prefix), home]
    read += map(Path, tools.paths)
    read += [Path(path) for server in servers for path in (*server.paths, *server.writable)]
    writable = [home, *_written(settings, who)]
    if place.system and who.pw_name == DEDICATED:
        writable.insert(1, folder)
    # Whether the owner wants commands to do all that the account may.
    lets_out = (tools.enabled and tools.sandbox == "none") or any(
        server.enabled and server.command and not server.sandbox for server in servers
    )
    unit = Unit(
        name=place.unit,
        command=command,
        home=home,
        path=path,
        grace_seconds=settings.agent.shutdown_grace_seconds,
        user=who.pw_name if place.system else "",
        writable=tuple(map(str, dict.fromkeys(writable))),
        homes=not place.system
        or any(one.is_relative_to(folder) for one in read for folder in _HOMES),
        shut_in=not lets_out,
    )
    _ = unit.text  # raises before anything is changed
    return unit


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
    try:
        mode = Path(folder).stat().st_mode
    except OSError:
        return False
    return folder.startswith("/") and stat.S_ISDIR(mode) and not mode & stat.S_IWOTH


def _settings(home: Path, bare: Mapping[str, str]) -> Settings:
    """What a service will read, which has nothing of the shell's environment."""
    from nanobot.config.load import load_settings

    try:
        return load_settings(home, bare)
    except ConfigError as error:
        elsewhere = "A service has nothing of your shell's environment: what is missing, write it"
        hint = f"{error.hint}\n  {elsewhere} into {home}/secrets.env."
        raise ConfigError(str(error), hint=hint) from error


def _written(settings: Settings, who: Account) -> Iterator[Path]:
    """Folders outside of the home that may be changed, as the account of the service sees them."""
    if settings.backup.folder:
        folder = settings.home / expanduser(settings.backup.folder, who.pw_dir)
        yield Path(os.path.normpath(folder))  # systemd takes no steps up
    for server in settings.mcp.servers.values():
        if server.enabled:
            yield from map(Path, server.writable)
