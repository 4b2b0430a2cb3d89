"""`nanobot doctor`: whether everything works, and what to do where it does not.

Nothing is changed, it works beside a running gateway, and what is printed holds no secret. No model
is asked anything, unless that is wished for. Exit code 1 where something does not work.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot.cli.command import add, print_json, print_text, table
from nanobot.cli.status import PATIENCE_SECONDS
from nanobot.errors import ConfigError, NanobotError

if TYPE_CHECKING:
    from nanobot.channel.entry_points import CheckFinding as Finding
    from nanobot.cli.command import Commands
    from nanobot.clock import Clock
    from nanobot.config.settings import Settings

    Check = tuple[str, Callable[[], Iterable[Finding]]]
    """The name that the report has for it, and what looks."""

_RESERVE = 200
"""Megabytes, as retention.disk_reserve_megabytes is where nothing is set."""


class Case:
    """What is examined, and what one check learns that another is about. A gateway may take
    `patience` seconds to answer."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        ask_model: bool = False,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self.settings, self.clock = settings, clock
        self.ask_model, self.patience = ask_model, patience
        self.home = settings.home
        self.ahead: list[float] = []
        """By how many seconds this machine is ahead of each who said what time it is."""
        self.judged = False
        """Whether a gateway runs and says itself what it could not answer or deliver."""

    def note_time(self, found: Finding) -> None:
        """Remember what time a server has just said it is, if it did."""
        if found.told is not None:
            self.ahead.append((self.clock.now() - found.told).total_seconds())


def add_doctor(commands: Commands) -> None:
    """`nanobot doctor`."""
    doctor = add(commands, "doctor", "check that everything works, and say what to fix", _doctor)
    doctor.flag(
        "--ask-model",
        "also have the model and its fallbacks answer one short question, which costs tokens",
    )
    doctor.json()


def _doctor(options: argparse.Namespace) -> int:
    """Print what each check finds, at once: a server that is not there takes seconds."""
    from nanobot.app.base import secret_values
    from nanobot.channel.entry_points import CheckFinding as Finding
    from nanobot.clock import SystemClock
    from nanobot.config.load import load_settings
    from nanobot.logs import log_to_console
    from nanobot.security.redaction import Redactor

    log_to_console("error", Redactor())
    redactor = Redactor()
    try:
        settings = load_settings(options.home)
    except ConfigError as error:
        wrong = Finding("fail", str(error), error.hint)
        checks: Sequence[Check] = (
            *_checks_of_any(options.home),
            ("configuration", lambda: [wrong]),
        )
    else:
        redactor = Redactor(secret_values(settings))
        checks = _checks(Case(settings, SystemClock(settings.agent.timezone), options.ask_model))
    found = []
    for name, check in checks:
        for finding in safely(check):
            text, hint = redactor.redact(finding.text), redactor.redact(finding.hint)
            found.append({"check": name, "state": finding.state, "text": text, "hint": hint})
            if not options.json:
                print_text(_lines(found[-1]))
    if options.json:
        print_json(found)
    return 1 if any(data["state"] == "fail" for data in found) else 0


def safely(check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """What a check finds; where it breaks, that is a finding."""
    from nanobot.channel.entry_points import CheckFinding as Finding

    try:
        yield from check()
    except NanobotError as error:
        yield Finding("fail", str(error), error.hint)
    except Exception as error:  # noqa: BLE001 - the boundary: one broken check hides no other
        yield Finding("fail", f"this could not be checked: {type(error).__name__}")


def _lines(data: Mapping[str, str]) -> str:
    first, *more = [*data["text"].splitlines(), *data["hint"].splitlines()] or [""]
    beneath = [(" " * 4, " " * 14, line.strip()) for line in more if line.strip()]
    return table([(data["state"].ljust(4), data["check"].ljust(14), first), *beneath])


def _checks_of_any(home: Path, reserve: int = _RESERVE) -> Sequence[Check]:
    """Those of a home whose configuration may be wrong."""
    from nanobot.cli.doctor.home import check_disk, check_home, check_packages

    return (
        ("home", lambda: check_home(home)),
        ("disk", lambda: check_disk(home, reserve)),
        ("packages", check_packages),
    )


def _checks(case: Case) -> Sequence[Check]:
    """All of them in order. Time is last: servers that were asked before have said what they think
    it is."""
    from nanobot.cli.doctor import home, surroundings

    checks = (
        ("configuration", home.check_configuration),
        ("gateway", surroundings.check_gateway),
        ("service", surroundings.check_service),
        ("model", surroundings.check_model),
        ("sandbox", surroundings.check_sandbox),
        ("mcp", surroundings.check_mcp),
        ("channels", surroundings.check_channels),
        ("journal", home.check_journal),
        ("conversations", home.check_conversations),
        ("versions", home.check_versions),
        ("set aside", home.check_set_aside),
        ("backups", home.check_backups),
        ("time", surroundings.check_time),
    )
    reserve = case.settings.retention.disk_reserve_megabytes
    bound = [(name, partial(_noting, check, case)) for name, check in checks]
    return (*_checks_of_any(case.home, reserve), *bound)


def _noting(check: Callable[[Case], Iterable[Finding]], case: Case) -> Iterator[Finding]:
    for found in check(case):
        case.note_time(found)
        yield found
