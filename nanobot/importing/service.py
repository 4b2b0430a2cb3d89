"""`nanobot import` without its words: a trial that writes nothing, then the thing itself.

What always holds: nobody sees the new home before it is complete, and the other home is whole
whatever happens. Where both are to have the same path, the other one is renamed at the very end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from nanobot.clock import Clock
from nanobot.errors import NanobotError
from nanobot.importing.importer import Import
from nanobot.importing.newhome import NewHome, Staging
from nanobot.importing.report import Report
from nanobot.importing.source import Source, locate


@dataclass(frozen=True, slots=True)
class Plan:
    """An import that can be carried out. `aside` is where the other home is moved to, None where it
    stays; `report` is what would be done."""

    source: Source
    target: Path
    aside: Path | None
    owners: Sequence[str]
    report: Report


def prepare(
    source: Path, target: Path, workspace: Path | None, owners: Sequence[str], clock: Clock
) -> Plan:
    """Look at everything, write nothing. Raises `NanobotError` where it cannot be imported."""
    for owner in owners:
        channel, _, id = owner.partition(":")
        if not channel or not id.strip():
            raise NanobotError(
                f"{owner!r} is no account", hint="Accounts are written as telegram:12345."
            )
    found = locate(source, workspace, target)
    place = target.resolve()
    in_place = place == found.home
    if not in_place:
        _refuse(found, place)
    if place.is_mount():
        raise NanobotError(
            f"{place} is a disk of its own, which cannot change its name",
            hint=f"Import into a folder in it: --to {place / 'home'}",
        )
    report = Import(found, place, NewHome(), clock.now(), owners).run()
    return Plan(found, place, _free(place) if in_place else None, owners, report)


def carry_out(plan: Plan, clock: Clock) -> Report:
    """Do it. Raises `NanobotError`: both homes are as they were then."""
    with Staging(plan.target) as staging:
        staging.expect_room(2 * sum(item.size for item in plan.report.items))
        new = NewHome(staging.folder)
        report = Import(plan.source, plan.target, new, clock.now(), plan.owners).run()
        staging.put_in_place(plan.aside)
    report.done = True
    return report


def _refuse(source: Source, target: Path) -> None:
    """Raises `NanobotError` where nothing can be imported into `target`."""
    if target.is_relative_to(source.home) or source.home.is_relative_to(target):
        raise NanobotError(
            f"{target} and {source.home} lie within each other", hint="Name another home with --to."
        )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise NanobotError(
            f"{target} is not empty, and nothing in it is written over",
            hint="Name a new home with --to, or move that one away first.",
        )


def _free(home: Path) -> Path:
    """A name beside `home` for what stands there now."""
    base = f"{home.name}.before-import"
    names = (base if number == 1 else f"{base}-{number}" for number in count(1))
    return next(path for name in names if not (path := home.with_name(name)).exists())
