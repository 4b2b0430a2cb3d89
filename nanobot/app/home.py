"""The home of a nanobot: its folders, and everything that keeps something in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from loguru import logger

from nanobot.agent.media import MediaStore
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.clock import Clock
from nanobot.errors import NanobotError, StorageError
from nanobot.gateway.lock import expect_whole
from nanobot.memory.store.template import install_template, template_folder
from nanobot.security.paths import Root
from nanobot.session.manager import SessionManager
from nanobot.tools.undo import SpillFolder, UndoLog

GATHER_SECONDS = 0.02
"""How long a turn's lines wait for those of others; the journal has them meanwhile."""


@dataclass(frozen=True, slots=True)
class Stores:
    """Everything that keeps something on disk, memory aside."""

    home: Path
    journal: SqliteJournal
    sessions: SessionManager
    media: MediaStore
    workspace: Root
    spill: SpillFolder
    undo: UndoLog

    @property
    def state(self) -> Path:
        """Where what is no text for people lies."""
        return self.home / "state"


def build_stores(home: Path, clock: Clock) -> Stores:
    """The home's folders and what lives in them. Raises `StorageError`."""
    make_home(home)
    workspace = Root(home / "workspace")
    try:
        install_template(template_folder(), workspace.path)
    except NanobotError as error:  # one can chat without
        logger.error("the workspace is in trouble: {} {}", error, error.hint)
    return Stores(
        home=home,
        journal=SqliteJournal(home / "state" / "journal.db", clock),
        sessions=SessionManager(
            home / "sessions", clock, on_trouble=_log_trouble, gather_seconds=GATHER_SECONDS
        ),
        media=MediaStore(home / "media"),
        workspace=workspace,
        spill=SpillFolder(home / "spill"),
        undo=UndoLog(home / "state" / "undo", workspace),
    )


def make_home(home: Path) -> None:
    """Make the home and its folders, readable by their owner only. Raises `StorageError`, also
    where a restore was cut short: what is made there would be taken for some of a home."""
    expect_whole(home)
    for folder in (home, home / "state", home / "sessions", home / "media", home / "logs"):
        Root(folder, name="home").create()
    try:
        home.chmod(0o700)  # it may have been made by hand
    except OSError as error:
        raise StorageError.of(home, error) from error


def _log_trouble(error: NanobotError) -> None:
    logger.error("{} {}", error, error.hint)
