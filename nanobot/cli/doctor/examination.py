"""All the checks in order, each behind a boundary: one that breaks hides no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from nanobot.cli.doctor.backups import check_backups
from nanobot.cli.doctor.channels import check_channels
from nanobot.cli.doctor.conversations import check_conversations, check_set_aside
from nanobot.cli.doctor.finding import Case, Check, Finding
from nanobot.cli.doctor.home import check_configuration, check_disk, check_home, room
from nanobot.cli.doctor.model import check_model
from nanobot.cli.doctor.packages import check_packages
from nanobot.cli.doctor.service import check_gateway, check_service
from nanobot.cli.doctor.stores import check_index, check_journal, check_versions
from nanobot.cli.doctor.times import check_time
from nanobot.cli.doctor.tools import check_mcp, check_sandbox, check_web
from nanobot.errors import NanobotError

_CHECKS: Sequence[tuple[str, Check]] = (
    ("home", lambda case: check_home(case.home)),
    ("disk", check_disk),
    ("packages", lambda _: check_packages()),
    ("configuration", check_configuration),
    ("gateway", check_gateway),
    ("service", check_service),
    ("model", check_model),
    ("sandbox", check_sandbox),
    ("web", check_web),
    ("mcp", check_mcp),
    ("channels", check_channels),
    ("journal", check_journal),
    ("conversations", check_conversations),
    ("versions", check_versions),
    ("index", check_index),
    ("set aside", check_set_aside),
    ("backups", check_backups),
    ("time", check_time),
)
"""Time is last: servers that were asked before have said what they think it is."""

_RESERVE = 200
"""Megabytes, as retention.disk_reserve_megabytes is where nothing is set."""


def findings_of(case: Case) -> Iterator[Finding]:
    """All that can be said once the configuration is right, without secrets, as it is found."""
    from nanobot.app.base import secret_values
    from nanobot.security.redaction import Redactor

    redact = Redactor(secret_values(case.settings)).redact
    found = (one for name, check in _CHECKS for one in _safely(name, _bound(check, case)))
    for one in found:
        yield Finding(one.check, one.state, redact(one.text), redact(one.hint))


def findings_without(home: Path) -> list[Finding]:
    """What can be said of a home whose configuration cannot be used."""
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
