"""`nanobot uninstall`: stops and removes the services of a home, and says what stays.

Invariants: without `--purge` nothing but unit files of ours is removed. With it the home goes only
after its name was typed, while no gateway runs, and only if it is one of nanobot's.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from nanobot.cli.command import (
    Commands,
    Options,
    print_text,
    settings_or_defaults,
    size,
    table,
    write_stdout,
)
from nanobot.cli.service import remove_service
from nanobot.cli.unit import services_of
from nanobot.cli.update import find_installation
from nanobot.errors import NanobotError

_SIGNS = ("state", "config.yaml", "workspace", "sessions")
"""Two of these make a folder a home of nanobot's."""


def add_uninstall(commands: Commands) -> None:
    """`nanobot uninstall`."""
    uninstall = commands.add("uninstall", "remove the service, and say what stays", _uninstall)
    uninstall.flag("--purge", "remove the home as well, once you have typed its name")
    uninstall.yes()


def _uninstall(options: Options) -> int:
    """Exit code 1 where the answer was no."""
    home: Path = options.home
    if options.purge:
        _expect_home(home)
    places = services_of(home)
    if system := [place for place in places if place.system and os.geteuid()]:
        hint = f"`sudo nanobot service uninstall{system[0].options}`, and then this again."
        raise NanobotError(f"only root can remove {system[0].file}", hint=hint)
    plan = [(f"stop and remove {place.unit}", str(place.file)) for place in places]
    if options.purge:
        plan.append(("remove for good", str(home)))
    if plan and not options.yes:
        shown = f"To be done:\n{table(plan, margin=2)}\n{_stays(options)}"
        if not options.ask_consent(shown, "Do this?"):
            return 1
    for place in places:
        remove_service(place)
        print_text(f"{place.unit} is stopped and removed.\n")
    if not options.purge:
        nothing = "" if places else f"No service runs {home}.\n"
        return print_text(nothing + (_stays(options) if options.yes or not plan else ""))
    return _purge(home)


def _stays(options: Options) -> str:
    """What is left afterwards, and how each of it is removed."""
    from nanobot.gateway.status import bytes_in

    home, rows = options.home, []
    if home.is_dir() and not options.purge:
        rows.append(
            ("your data", f"{home} ({size(bytes_in(home.resolve()))})", "nanobot uninstall --purge")
        )
    folder, count = _backups(home)
    inside = folder.is_relative_to(home)
    if count and not (inside and options.purge):
        named = f"{count} backup{'s' if count > 1 else ''} in {folder}"
        rows.append(("backups", named, "with your data" if inside else f"rm -r {folder}"))
    found = find_installation()
    rows.append(("the program", str(found.source or sys.prefix), found.removal()))
    return f"What stays, and how it is removed:\n{table(rows, margin=2)}"


def _backups(home: Path) -> tuple[Path, int]:
    """Where backups go, and how many are there."""
    folder = settings_or_defaults(home).backup.place(home)
    return folder, sum(1 for _ in folder.glob("nanobot-*"))


def _expect_home(home: Path) -> None:
    """Raise `NanobotError` for what is no home of nanobot's, or must not go in any case."""
    if home.is_symlink() or not home.is_dir():
        raise NanobotError(f"{home} is no folder")
    if Path.home().resolve().is_relative_to(home.resolve()):
        raise NanobotError(f"{home} holds more than nanobot's; it is not removed")
    if sum((home / sign).exists() for sign in _SIGNS) < 2:
        raise NanobotError(f"{home} does not look like a home of nanobot's; it is not removed")


def _purge(home: Path) -> int:
    """Asks for the name, and removes the home. Raises `HomeLocked` while a gateway runs."""
    from nanobot.gateway.lock import home_lock
    from nanobot.io import storage_errors

    _expect_home(home)
    with home_lock(home / "state"):
        sys.stdout.write(f"Type the name of the home, {home.name}, to remove it for good: ")
        sys.stdout.flush()
        if sys.stdin.readline().strip() != home.name:
            write_stdout(f"That is not its name. {home} stays.\n")
            return 1
        with storage_errors(home):
            shutil.rmtree(home)
    return print_text(f"{home} is removed.\n")
