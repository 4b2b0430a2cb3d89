"""Settings and fixtures of all tests: a failure shows only the warnings of the log, and properties
run with a fixed number of examples.

Writing every debug line took a tenth of the time of tests that run a whole nanobot. A test that
reads the log adds its own sink. `NANOBOT_EXAMPLES=1000 pytest …` searches more. Tests with their
own number are slower for each example."""

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
from tests.files import guard_open_databases
from tests.privileges import without_privileges
from tests.scratch import scratch

if TYPE_CHECKING:
    from tests.doubles.postgres import PostgresServer

EXAMPLES = 25
"""Each run tries other examples, unless a test fixes them."""


def _to_standard_error(message: str) -> None:
    sys.stderr.write(message)  # the one of the test that runs, which pytest has put in place


encodings.take_away()
signals.give_back()
guard_open_databases()

logger.remove()
logger.add(_to_standard_error, level="WARNING")

settings.register_profile(
    "nanobot", max_examples=int(os.environ.get("NANOBOT_EXAMPLES", EXAMPLES)), deadline=None
)
settings.load_profile("nanobot")


_TIERS = {"chromium": pytest.mark.browser, "postgres": pytest.mark.team}
"""The mark of tests by a slow fixture."""


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark the tests that only `make test-all` runs."""
    for item in items:
        for name in _TIERS.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(_TIERS[name])


def pytest_collection_finish() -> None:
    """Freeze the imported modules: repeated garbage collection of them took a twentieth of the time
    of all tests."""
    gc.freeze()
    gc.set_threshold(20_000, 50, 1_000)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """An empty folder, in memory if there is room. pytest's own is on the disk."""
    with scratch() as path:
        yield path


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL for all tests of a process."""
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
    """A home without access, even if the tests run as root."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name) / "home"
        home.mkdir(mode=0)
        home.parent.chmod(0o755)
        with without_privileges():
            yield home
