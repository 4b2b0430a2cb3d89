"""Moves a home into a team and back: `nanobot team init` and `nanobot team leave`.

Each is a list of steps. A process may be killed in any step: the next run of the command continues,
and nothing is lost or duplicated. The rules:

- The first step makes a folder `state/to-team-WORD` or `state/from-team-WORD` in the home. While it
  exists, neither that home nor its worker starts (`nanobot.gateway.lock`).
- The shared folder gets the same word before anything is moved there, and the database in the
  transaction that moves the rows. On the way back, the word in the database keeps workers from
  starting before anything is moved.
- A folder never has its name in two places: a copy gets the name when the original has lost it."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from errno import EXDEV
from functools import partial
from pathlib import Path

import psycopg
from msgspec import Struct
from msgspec.structs import replace

from nanobot.app.base import build_access, build_scopes, load_channels, make_home, scope_of
from nanobot.bus.events import API, TERMINAL
from nanobot.bus.journal_file import COPY, SCHEMA, SqliteState
from nanobot.bus.sqlite import open_file
from nanobot.channel import exclusive_among
from nanobot.clock import SystemClock
from nanobot.config.settings import Settings, TeamSettings
from nanobot.errors import NanobotError, StorageError
from nanobot.gateway.lock import FROM_TEAM, JOURNAL, MOVED, TO_TEAM
from nanobot.io import make_folder, replace_file, storage_errors, sync_folder
from nanobot.memory.documents import install_template, template_folder
from nanobot.session.catalogue import SessionCatalogue
from nanobot.session.manager import SessionManager
from nanobot.team import folder, row_copy, schema
from nanobot.team.connection import DatabaseAddress, Row
from nanobot_web.channel import WebChannel

FOLDERS = (
    "workspace", "sessions", "media", "spill",
    "state/undo", "state/memory.git", "state/versions", "state/questions",
)  # fmt: skip
"""Shared folders of a team, without folders of channels that one worker runs for all."""

Step = tuple[str, Callable[[], object]]


class Plan(Struct, frozen=True):
    """A plan, as sentences and as steps."""

    about: tuple[str, ...]
    steps: tuple[Step, ...] = ()


def plan_init(settings: Settings) -> Plan:
    """Return the plan to move the locked home into the team of its settings. Raises `NanobotError`
    if that is impossible."""
    home, shared, address = settings.home, settings.data_folder, address_of(settings)
    folder.check_folder(home, shared)
    half, is_begun = _half(home, TO_TEAM)
    finish = f"keep the old journal as state/{MOVED}", partial(_finish, half, home)
    own = _find_filled(home, _names(settings, home))
    with _connect(address) as db:
        here, there = folder.word_of_database(db), folder.word_of_folder(shared)
        if here == _word(half):
            return Plan(("finish the interrupted move",), (finish,))
        if not is_begun and here and here == there:
            return _join(settings, own)
        if here or there not in ("", folder.LEFT, _word(half)):
            raise folder.mismatch(address, shared)
        _expect_room(home, shared, own)
        if is_begun or _has_rows(home):
            _expect_empty(db, address)
    rows = "move messages, jobs, pairings, and the rest of the journal into the database"
    steps: tuple[Step, ...] = (
        ("create the tables in the database", partial(schema.prepare, address)),
        ("lock this home", partial(_begin, half, home, shared, address)),
        *((f"move {name}", partial(move, home / name, shared / name)) for name in own),
        ("add the missing files of a new workspace", partial(_fill, shared)),
        (rows, partial(_rows_to_database, settings, address, half)),
        finish,
    )
    about = f"use the shared folder {shared}", f"use {address.place}"
    return Plan(about, steps)


def plan_leave(settings: Settings) -> Plan:
    """Return the plan to move everything of the team into this locked home. Raises `NanobotError`
    if that is impossible."""
    home, shared, address = settings.home, settings.data_folder, address_of(settings)
    half, is_begun = _half(home, FROM_TEAM)
    finish = "unlock this home", partial(_open, half, home, shared)
    names = _names(settings, shared)
    with _connect(address) as db:
        here, there = folder.word_of_database(db), folder.word_of_folder(shared)
        if not is_begun:
            _expect_nothing(home, names)
            if not here:
                hint = (
                    "Run `nanobot team init` first. It also works with a database that workers "
                    "have already used."
                )
                raise NanobotError(f"{address.place} does not belong to a team", hint=hint)
            folder.expect_together(address, shared)
            schema.prepare(address)
        elif not here:
            return Plan(("finish the interrupted move",), (finish,))
        elif here not in (there, _word(half)):
            raise folder.mismatch(address, shared)
        with db.transaction():
            row_copy.expect_nobody(db)
    rows = "move the contents of the database into a journal"
    there_are = [n for n in names if os.path.lexists(shared / n) or _aside(shared / n).exists()]
    steps: tuple[Step, ...] = (
        ("lock the team", partial(_close_team, address, half)),
        *((f"move {name}", partial(move, shared / name, home / name)) for name in there_are),
        (rows, partial(_rows_to_file, address, half)),
        finish,
    )
    return Plan((f"move everything to {home}",), steps)


def _half(home: Path, kind: str) -> tuple[Path, bool]:
    """Return the folder of the unfinished move, and True if it exists."""
    begun = next((home / "state").glob(f"{kind}-*"), None)
    return begun or home / "state" / f"{kind}-{secrets.token_hex(8)}", begun is not None


def address_of(settings: Settings) -> DatabaseAddress:
    """Return the team's database. Raise `NanobotError` if it is not configured."""
    if dsn := settings.team.database.get_secret_value():
        return DatabaseAddress(dsn)
    raise NanobotError(
        "this nanobot is not in a team",
        hint="Set team.database and team.shared in config.yaml (see docs/team.md).",
    )


def _expect_room(home: Path, shared: Path, names: Sequence[str]) -> None:
    """Raise `NanobotError` if a folder to move has files in the shared one."""
    if taken := _find_filled(shared, (name for name in names if os.path.lexists(home / name))):
        raise NanobotError(
            f"{shared} is not empty: {', '.join(taken)}",
            hint="Set team.shared to an empty folder, or move these files away.",
        )


def _expect_empty(db: psycopg.Connection[Row], address: DatabaseAddress) -> None:
    """Raise `NanobotError` if there are messages in the database."""
    if schema.has_tables(db) and row_copy.has_rows(db):
        hint = "Set team.database to an empty database."
        raise NanobotError(f"{address.place} already contains messages", hint=hint)


def _join(settings: Settings, own: Sequence[str]) -> Plan:
    """Return the plan that makes the home another worker's."""
    home, shared = settings.home, settings.data_folder
    if own := [*own, *(["messages"] if _has_rows(home) else [])]:
        raise NanobotError(
            f"both this home and the team contain {', '.join(own)}",
            hint="The home of an additional worker must contain only config.yaml and secrets.env.",
        )
    steps: list[Step] = [("create the home's folders", partial(make_home, home))]
    state = home / "state"
    if (state / JOURNAL).exists():  # without a row
        steps.append(
            ("set the home's empty journal aside", partial(_put_aside, state / JOURNAL, state))
        )
    return Plan((f"add this home to the team in {shared} as another worker",), tuple(steps))


def _begin(half: Path, home: Path, shared: Path, address: DatabaseAddress) -> None:
    """Keep the home from starting. Raises `NanobotError` if another home has begun in the same
    folder since the check."""
    there = folder.word_of_folder(shared)
    if there not in ("", folder.LEFT, _word(half)):
        raise folder.mismatch(address, shared)
    make_folder(half)
    if there != _word(half):
        make_folder(shared / "state")
        replace_file(folder.word_file(shared), _word(half).encode())
    journal, target = home / "state" / JOURNAL, half / JOURNAL
    if not target.exists():
        _settle(journal)
        _rename(journal, target)


def _fill(shared: Path) -> None:
    make_home(shared)
    install_template(shared / "workspace")


def _rows_to_database(settings: Settings, address: DatabaseAddress, half: Path) -> None:
    """Move all rows and the word into the database, in one transaction."""
    whose = _whose(settings, SqliteState(half))
    file = open_file(half / JOURNAL, SCHEMA)
    with closing(file), _connect(address) as db, db.transaction():
        row_copy.expect_nobody(db)
        if folder.word_of_database(db) or folder.word_of_folder(settings.data_folder) != _word(
            half
        ):
            raise folder.mismatch(address, settings.data_folder)
        row_copy.to_database(file, db, whose)
        folder.put_word(db, _word(half))


def _whose(settings: Settings, state: SqliteState) -> row_copy.Whose:
    clock = SystemClock(settings.agent.timezone)
    alone = replace(settings, team=TeamSettings())
    access = build_access(alone, state, clock, (TERMINAL,))
    access.load()
    scopes = build_scopes(alone, access)
    kept = settings.home / "state" / "catalogue.db"
    catalogue = SessionCatalogue(settings.data_folder / "sessions", clock, kept)
    sessions = SessionManager(catalogue, clock)
    state.close()

    def of_conversation(key: str) -> str:
        return scopes.of_session(key, sessions.metadata_of(key))

    return row_copy.Whose(
        partial(scope_of, scopes, sessions),
        of_conversation,
        exclusive_among(load_channels(settings)),
    )


def _finish(half: Path, home: Path) -> None:
    state = home / "state"
    if (half / JOURNAL).exists():
        _put_aside(half / JOURNAL, state)
    (state / COPY).unlink(missing_ok=True)  # of documents as they were
    shutil.rmtree(half)
    sync_folder(state)


def _put_aside(journal: Path, state: Path) -> None:
    _settle(journal)
    _rename(journal, state / MOVED)


def _close_team(address: DatabaseAddress, half: Path) -> None:
    """Keep workers from starting."""
    schema.prepare(address)
    make_folder(half)
    with _connect(address) as db, db.transaction():
        row_copy.expect_nobody(db)
        folder.put_word(db, _word(half))


def _rows_to_file(address: DatabaseAddress, half: Path) -> None:
    """Move all rows into a new file, which is synced before they leave the database."""
    for rest in half.iterdir():
        rest.unlink()
    with _connect(address) as db, db.transaction():
        with closing(open_file(half / JOURNAL, SCHEMA)) as file:
            row_copy.to_file(db, file)
        _settle(half / JOURNAL)
        sync_folder(half)
        row_copy.clear(db)


def _open(half: Path, home: Path, shared: Path) -> None:
    """Let the home start again. Its older journal from before `init` is removed."""
    replace_file(folder.word_file(shared), folder.LEFT.encode())
    state = home / "state"
    if (half / JOURNAL).exists():
        _rename(half / JOURNAL, state / JOURNAL)
    (state / MOVED).unlink(missing_ok=True)
    shutil.rmtree(half)
    sync_folder(state)


def _expect_nothing(home: Path, names: Sequence[str]) -> None:
    """Raise `NanobotError` if the home has its own data."""
    found = _find_filled(home, names)
    if (home / "state" / JOURNAL).exists():
        found.append(f"state/{JOURNAL}")
    if found:
        raise NanobotError(
            f"this home has its own data: {', '.join(found)}",
            hint=(
                "`nanobot team init` moves it into the team. Otherwise, move it away, or run "
                "this command in a home that contains only config.yaml and secrets.env."
            ),
        )


def _names(settings: Settings, place: Path) -> list[str]:
    """Return the folders in `place` to move. Channels that run on each worker keep theirs."""
    each = {TERMINAL, WebChannel.name, *(one.name for one in load_channels(settings))}
    each -= {API, *exclusive_among(load_channels(settings))}
    channels = place / "state" / "channels"
    found = sorted(path.name for path in channels.iterdir()) if channels.is_dir() else []
    found = [name.removeprefix(".").removesuffix(".moved") for name in found]
    return [*FOLDERS, *(f"state/channels/{n}" for n in dict.fromkeys(found) if n not in each)]


def _find_filled(place: Path, names: Iterable[str]) -> list[str]:
    return [name for name in names if _has_files(place / name)]


def _has_files(place: Path) -> bool:
    """Return True if a folder holds a file or a link, or did when its move began. Files of every
    new workspace don't count."""
    if _aside(place).exists() or (place.is_symlink() and not place.is_dir()):
        return True
    template = template_folder()
    for top, folders, names in os.walk(place):
        if any(Path(top, name).is_symlink() for name in folders):
            return True
        for name in names:
            file = Path(top, name)
            shipped = template / file.relative_to(place)
            if not (shipped.is_file() and file.read_bytes() == shipped.read_bytes()):
                return True
    return False


def _has_rows(home: Path) -> bool:
    journal = home / "state" / JOURNAL
    if not journal.exists():
        return False
    with closing(open_file(journal, SCHEMA)) as file:
        return row_copy.has_rows(file)


def _settle(journal: Path) -> None:
    """Put everything into the one journal file, which is made if needed."""
    with closing(open_file(journal, SCHEMA)) as file:
        file.execute("PRAGMA journal_mode=DELETE").fetchall()


def _word(half: Path) -> str:
    return half.name.rpartition("-")[2]


@contextmanager
def _connect(address: DatabaseAddress) -> Iterator[psycopg.Connection[Row]]:
    """Yield a connection without a timeout in transactions."""
    with address.errors(), address.connect_blocking() as db:
        db.execute("SET idle_in_transaction_session_timeout = 0")
        yield db


def move(source: Path, target: Path) -> None:
    """Move the folder `source` to `target`, even on another file system. Raises `StorageError`,
    also if `target` exists."""
    copy, aside = target.with_name(f".{target.name}.copy"), _aside(source)
    with storage_errors(source):
        if os.path.lexists(source):
            make_folder(target.parent)
            _clear(target)
            if not _try_rename(source, target):
                shutil.rmtree(copy, ignore_errors=True)  # of an interrupted attempt
                shutil.copytree(source.resolve(), copy, symlinks=True, copy_function=_copy_file)
                for top, _, _ in os.walk(copy):
                    sync_folder(Path(top))
                sync_folder(copy.parent)  # a copy without a name would be lost with the original
                _rename(source, aside)
        if copy.exists():  # complete, since the original has lost its name
            _clear(target)
            _rename(copy, target)
        if aside.is_symlink():
            aside.unlink()
        elif aside.exists():
            shutil.rmtree(aside)
        sync_folder(source.parent)


def _try_rename(source: Path, target: Path) -> bool:
    if source.is_symlink():  # it points to a local disk
        return False
    try:
        _rename(source, target)
    except OSError as error:
        if error.errno != EXDEV:
            raise
        return False
    return True


def _rename(source: Path, target: Path) -> None:
    """Rename and sync."""
    source.rename(target)
    sync_folder(target.parent)
    if source.parent != target.parent:
        sync_folder(source.parent)


def _copy_file(source: str, target: str) -> None:
    """Copy a file and sync it. Skip sockets and the like."""
    if Path(source).is_file():
        shutil.copy2(source, target)
        with Path(target).open("rb") as file:
            os.fsync(file.fileno())


def _aside(source: Path) -> Path:
    return source.with_name(f".{source.name}.moved")


def _clear(target: Path) -> None:
    """Remove a tree of empty folders. Raises `StorageError` if it is not empty."""
    for top, _, _ in os.walk(target, topdown=False):
        with suppress(FileNotFoundError):
            Path(top).rmdir()
    if os.path.lexists(target):
        raise StorageError(target, "something else is already there", hint="Move it away.")
