"""`nanobot doctor`: whether everything works, and what to do where it does not.

Nothing is changed, it works beside a running gateway, and what is printed holds no secret. No model
is asked anything, unless that is wished for. Exit code 1 where something does not work.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from nanobot.cli.command import add, add_json, home_of, put, to_json
from nanobot.cli.show import table
from nanobot.cli.status import PATIENCE_SECONDS
from nanobot.errors import ConfigError, NanobotError
from nanobot_cli.text import clean

if TYPE_CHECKING:
    from nanobot.cli.command import Commands
    from nanobot.clock import Clock
    from nanobot.config.settings import Settings

_RESERVE = 200
"""Megabytes, as retention.disk_reserve_megabytes is where nothing is set."""


class Finding(NamedTuple):
    """One line of the report; `hint` says what to do about it."""

    check: str
    state: Literal["ok", "warn", "fail"]
    text: str
    hint: str = ""


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
        self.times: list[tuple[str, float]] = []
        """Who said what time it is, and by how many seconds this machine is ahead of them."""
        self.judged = False
        """Whether a gateway runs and says itself what it could not answer or deliver."""

    def hear(self, who: str, told: datetime | None) -> None:
        """Somebody has just said what time it is, if they did."""
        if told is not None:
            self.times.append((who, (self.clock.now() - told).total_seconds()))


Check = Callable[[Case], Iterable[Finding]]


def add_doctor(commands: Commands) -> None:
    """`nanobot doctor`."""
    doctor = add(commands, "doctor", "check that everything works, and say what to mend", _doctor)
    doctor.add_argument(
        "--ask-model",
        action="store_true",
        help="also have the model and its fallbacks answer one short question, which costs tokens",
    )
    add_json(doctor)


def _doctor(options: argparse.Namespace) -> int:
    from nanobot.clock import SystemClock
    from nanobot.config.load import load_settings
    from nanobot.logs import log_to_console
    from nanobot.security.redaction import Redactor

    log_to_console("error", Redactor())
    home = home_of(options)
    try:
        settings = load_settings(home)
    except ConfigError as error:
        wrong = Finding("configuration", "fail", str(error), error.hint)
        return _told([*_findings_without(home), wrong], as_json=options.json)
    case = Case(settings, SystemClock(settings.agent.timezone), options.ask_model)
    return _told(findings_of(case), as_json=options.json)


def _told(findings: Iterable[Finding], *, as_json: bool) -> int:
    told = []
    for finding in findings:
        told.append(finding)
        if not as_json:  # at once: a server that is not there takes seconds
            put(_lines(finding))
            sys.stdout.flush()
    if as_json:
        put(to_json([finding._asdict() for finding in told]))
    return 1 if any(finding.state == "fail" for finding in told) else 0


def _lines(finding: Finding) -> str:
    left = (finding.state.ljust(4), finding.check.ljust(14))
    text, *more = clean(finding.text).splitlines() or [""]
    more += clean(finding.hint).splitlines()
    beneath = tuple(" " * len(cell) for cell in left)
    rows = [(*left, text), *((*beneath, line.strip()) for line in more if line.strip())]
    return table(rows)


def _checks() -> Sequence[tuple[str, Check]]:
    """All of them in order. Time is last: servers that were asked before have said what they think
    it is."""
    from nanobot.cli.doctor import home, surroundings

    return (
        ("home", lambda case: home.check_home(case.home)),
        ("disk", home.check_disk),
        ("packages", lambda _: home.check_packages()),
        ("configuration", home.check_configuration),
        ("gateway", surroundings.check_gateway),
        ("service", surroundings.check_service),
        ("model", surroundings.check_model),
        ("sandbox", surroundings.check_sandbox),
        ("web", surroundings.check_web),
        ("mcp", surroundings.check_mcp),
        ("channels", surroundings.check_channels),
        ("journal", home.check_journal),
        ("conversations", home.check_conversations),
        ("versions", home.check_versions),
        ("index", home.check_index),
        ("set aside", home.check_set_aside),
        ("backups", home.check_backups),
        ("time", surroundings.check_time),
    )


def findings_of(case: Case) -> Iterator[Finding]:
    """All that can be said once the configuration is right, without secrets, as it is found."""
    from nanobot.app.base import secret_values
    from nanobot.security.redaction import Redactor

    redact = Redactor(secret_values(case.settings)).redact
    found = (one for name, check in _checks() for one in _safely(name, _bound(check, case)))
    for one in found:
        yield Finding(one.check, one.state, redact(one.text), redact(one.hint))


def _findings_without(home: Path) -> list[Finding]:
    """What can be said of a home whose configuration cannot be used."""
    from nanobot.cli.doctor.home import check_home, check_packages, room

    checks: tuple[tuple[str, Callable[[], Iterable[Finding]]], ...] = (
        ("home", lambda: check_home(home)),
        ("disk", lambda: room(home, _RESERVE)),
        ("packages", check_packages),
    )
    return [one for name, check in checks for one in _safely(name, check)]


def _bound(check: Check, case: Case) -> Callable[[], Iterable[Finding]]:
    return lambda: check(case)


def _safely(name: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    try:
        yield from check()
    except NanobotError as error:
        yield Finding(name, "fail", str(error), error.hint)
    except Exception as error:  # noqa: BLE001 - the boundary: one broken check hides no other
        yield Finding(name, "fail", f"this could not be checked: {type(error).__name__}")
