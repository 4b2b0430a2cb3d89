"""The checks of a team by `nanobot doctor`."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot.channel import CheckFinding
from nanobot.cli.checks import CheckContext, check_team, safely
from nanobot.clock import Clock, SystemClock
from nanobot.config.load import load_settings
from nanobot.team.connection import DatabaseAddress
from nanobot.team.folder import put_word, word_file
from nanobot.testing import FakeClock
from tests.doubles.pgbouncer import missing, pgbouncer, through
from tests.doubles.postgres import PostgresServer
from tests.upkeep.homes import write


def find_faults(folder: Path, dsn: str, clock: Clock) -> list[CheckFinding]:
    """Return the findings about the team of a home in `folder`."""
    team = f"team: {{database: '{dsn}', shared: {folder / 'shared'}}}\n"
    write(folder / "home/config.yaml", f"agent: {{timezone: UTC}}\n{team}")
    write(word_file(folder / "shared"), "otter")
    with DatabaseAddress(dsn).connect_blocking() as db:
        put_word(db, "otter")
    return list(safely(check_team(CheckContext(load_settings(folder / "home", {}), clock))))


def test_the_clock_of_this_machine_is_compared_with_the_databases(
    tmp_path: Path, team_database: str
) -> None:
    warned = [
        one for one in find_faults(tmp_path, team_database, FakeClock()) if one.state == "warn"
    ]
    assert "the clocks of this machine and the database server differ" in warned[0].text
    assert "NTP" in warned[0].hint


@pytest.mark.skipif(bool(missing), reason=missing)
def test_a_pooler_of_transactions_fails(tmp_path: Path, postgres: PostgresServer) -> None:
    name = postgres.create_prepared()
    with pgbouncer(postgres, "session") as folder:
        find_faults(tmp_path, through(folder, name), SystemClock())
    with pgbouncer(postgres, "transaction") as folder:
        write(
            tmp_path / "home/config.yaml",
            f"agent: {{timezone: UTC}}\nteam: {{database: '{through(folder, name)}',"
            f" shared: {tmp_path / 'shared'}}}\n",
        )
        settings = load_settings(tmp_path / "home", {})
        findings = list(safely(check_team(CheckContext(settings, SystemClock()))))
    assert [one.state for one in findings] == ["fail"]
    assert "pool_mode = session" in findings[0].hint
    postgres.drop(name)
