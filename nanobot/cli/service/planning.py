"""From the command line and the configuration to the unit that is to be. Changes nothing."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot.cli.service.places import DEDICATED, Account, Choice, Place, account, home_for
from nanobot.cli.service.unit import Unit
from nanobot.errors import ConfigError
from nanobot.tilde import expanded

if TYPE_CHECKING:
    from nanobot.config.settings import Settings

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
        folder = settings.home / expanded(settings.backup.folder, str(who.folder))
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
