"""What holds for all tests: a failure is shown with the warnings of the log, not with all of it,
and properties are tried with so many examples. What more than one part needs is here as well.

Writing every debug line took a tenth of the time of tests that run a whole nanobot. A test that
reads the log adds a sink of its own. `NANOBOT_EXAMPLES=1000 pytest …` looks harder: what has a
number of its own costs more for each example.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from loguru import logger

from tests import encodings, signals
from tests.privileges import without_privileges
from tests.scratch import scratch

if TYPE_CHECKING:
    from tests.doubles.postgres import PostgresServer

EXAMPLES = 25
"""Each run tries others, except where a test says that they are always the same."""


def _to_standard_error(message: str) -> None:
    sys.stderr.write(message)  # the one of the test that runs, which pytest has put in place


encodings.take_away()
signals.give_back()

logger.remove()
logger.add(_to_standard_error, level="WARNING")

settings.register_profile(
    "nanobot", max_examples=int(os.environ.get("NANOBOT_EXAMPLES", EXAMPLES)), deadline=None
)
settings.load_profile("nanobot")


_TIERS = {"chromium": pytest.mark.browser, "postgres": pytest.mark.team}
"""The mark of tests by a fixture that makes them slow."""


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark what `make test` leaves to `make test-all`."""
    for item in items:
        for name in _TIERS.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(_TIERS[name])


def pytest_collection_finish() -> None:
    """What was imported stays: looking through it for garbage again and again took a twentieth of
    the time of all tests."""
    gc.freeze()
    gc.set_threshold(20_000, 50, 1_000)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """An empty folder, in memory where there is room. pytest's own is on the disk."""
    with scratch() as path:
        yield path


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL of our own, for all tests of a process."""
    from tests.doubles.postgres import PostgresServer, running_postgres

    if PostgresServer.missing:
        pytest.skip(PostgresServer.missing)
    with running_postgres() as server:
        yield server


@pytest.fixture
def team_database(postgres: PostgresServer) -> Iterator[str]:
    """The address of a new database with a team's tables."""
    name = postgres.create_prepared()
    yield postgres.dsn(name)
    postgres.drop(name)


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """An empty folder on the disk, for commands in a sandbox."""
    with scratch(on_disk=True) as path:
        yield path


@pytest.fixture
def closed_home() -> Iterator[Path]:
    """A home that we may not enter, even where the tests run as root."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name) / "home"
        home.mkdir(mode=0)
        home.parent.chmod(0o755)
        with without_privileges():
            yield home
