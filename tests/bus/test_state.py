"""The contract of all document stores. Each test runs on every implementation."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from loguru import logger

from nanobot.bus.journal_file import SqliteState
from nanobot.bus.state import Document, InvalidDocument, StateStore, Stored
from nanobot.errors import StorageError, WriteConflict
from tests.doubles.state import MemoryState


@pytest.fixture(params=["sqlite", "memory", pytest.param("postgres", marks=pytest.mark.team)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StateStore]:
    if request.param == "memory":
        yield MemoryState()
    elif request.param == "sqlite":
        with contextlib.closing(SqliteState(tmp_path)) as state:
            yield state
    else:
        dsn = request.getfixturevalue("team_database")
        from nanobot.team.connection import DatabaseAddress
        from nanobot.team.state import PostgresState

        with contextlib.closing(PostgresState(DatabaseAddress(dsn))) as shared:
            yield shared


def numbers(store: StateStore) -> Document[tuple[int, ...]]:
    """Return a document of numbers. Any other content is unreadable."""

    def decode(content: bytes) -> tuple[int, ...]:
        try:
            return tuple(map(int, content.split()))
        except ValueError:
            raise InvalidDocument("it has words") from None

    def encode(value: tuple[int, ...]) -> bytes:
        return " ".join(map(str, value)).encode()

    return Document(store, "jobs", decode, encode, (), "Write it again.")


def test_what_was_written_is_read_and_its_revision_counts(store: StateStore) -> None:
    assert store.read("jobs") is None
    assert store.write("jobs", b"one", 0) == 1
    assert store.write("jobs", b"two", 1) == 2
    assert store.read("jobs") == Stored(b"two", 2)
    assert store.read("access") is None


@pytest.mark.parametrize("expected", [0, 2])
def test_a_write_that_expects_another_revision_changes_nothing(
    store: StateStore, expected: int
) -> None:
    store.write("jobs", b"one", 0)
    with pytest.raises(WriteConflict):
        store.write("jobs", b"two", expected)
    assert store.read("jobs") == Stored(b"one", 1)


def test_what_is_set_aside_is_gone_and_can_be_written_anew(store: StateStore) -> None:
    store.write("jobs", b"odd", 0)
    assert store.set_aside("jobs").partition(" ")[0] == "jobs.json.broken-1"
    assert store.read("jobs") is None
    store.write("jobs", b"odd too", 0)
    assert store.set_aside("jobs").partition(" ")[0] == "jobs.json.broken-2"


def test_a_change_is_made_on_what_somebody_else_wrote_meanwhile(store: StateStore) -> None:
    one, other = numbers(store), numbers(store)
    one.change(lambda value: (*value, 1))

    def slow(value: tuple[int, ...]) -> tuple[int, ...]:
        if 2 not in value:
            other.change(lambda value: (*value, 2))
        return (*value, 3)

    assert one.change(slow) == (1, 2, 3) == other.load() == numbers(store).load()


def test_changes_of_many_threads_are_all_made(store: StateStore) -> None:
    document = numbers(store)

    def add(number: int) -> None:
        document.change(lambda value: (*value, number))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers(store).load()) == list(range(20))


def test_a_change_that_changes_nothing_is_not_written(store: StateStore) -> None:
    numbers(store).change(lambda _: (1,))
    numbers(store).change(lambda value: value)
    assert store.read("jobs") == Stored(b"1", 1)


def test_a_change_that_fails_leaves_all_as_it_was(store: StateStore) -> None:
    document = numbers(store)
    document.change(lambda _: (1,))
    with pytest.raises(ZeroDivisionError):
        document.change(lambda value: (value[0] // 0,))
    assert document.load() == numbers(store).load() == (1,)


def test_a_document_that_cannot_be_read_is_set_aside_and_said_once(store: StateStore) -> None:
    store.write("jobs", b"one two", 0)
    said: list[str] = []
    sink = logger.add(lambda message: said.append(str(message)), format="{message}")
    document = numbers(store)
    assert (document.load(), document.load()) == ((), ())
    logger.remove(sink)
    assert document.problem == said[0].strip()
    assert len(said) == 1
    assert "It is kept as jobs.json.broken-1" in document.problem
    assert document.problem.endswith(". Write it again.")
    assert document.change(lambda value: (*value, 3)) == (3,)
    assert numbers(store).load() == (3,)


def test_one_that_somebody_breaks_is_set_aside_and_what_was_known_stays(store: StateStore) -> None:
    document = numbers(store)
    document.change(lambda _: (1, 2))
    store.write("jobs", b"one two", 1)
    assert document.load() == (1, 2)
    document.change(lambda value: (*value, 3))
    assert numbers(store).load() == (1, 2, 3)


def test_one_that_cannot_even_be_set_aside_is_not_written_over() -> None:
    store = MemoryState()
    store.put("jobs", "one two")
    store.refuses = True
    document = numbers(store)
    assert document.load() == ()
    with pytest.raises(StorageError):
        document.change(lambda _: (3,))
    assert store.text("jobs") == "one two"
    store.refuses = False
    document.change(lambda _: (3,))
    assert (store.text("jobs"), store.aside) == ("3", {"jobs.json.broken-1": b"one two"})


async def test_what_is_known_is_there_while_the_store_is_not() -> None:
    store = MemoryState(is_far=True)
    document, other = numbers(store), numbers(store)
    seen = list[tuple[int, ...]]()
    with pytest.raises(AssertionError):
        _ = document.value
    assert await asyncio.to_thread(lambda: document.value) == ()
    await asyncio.to_thread(document.save, (1,))
    await asyncio.to_thread(other.save, (1, 2))
    seen.append(document.value)
    await asyncio.to_thread(document.load)
    assert [*seen, document.value] == [(1,), (1, 2)]


def test_who_asks_for_what_is_known_does_not_wait_for_a_change() -> None:
    document, begun, may_end = numbers(MemoryState()), threading.Event(), threading.Event()
    document.save((1,))

    def slow(value: tuple[int, ...]) -> tuple[int, ...]:
        begun.set()
        may_end.wait()
        return (*value, 2)

    changing = threading.Thread(target=document.change, args=(slow,))
    known = list[tuple[int, ...]]()
    asking = threading.Thread(target=lambda: known.append(document.value), daemon=True)
    changing.start()
    begun.wait()
    asking.start()
    asking.join(30)
    assert known == [(1,)]
    may_end.set()
    changing.join()
    assert document.value == (1, 2)
