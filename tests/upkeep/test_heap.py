"""Unused memory is returned, and an idle process does nothing."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from nanobot.testing.clock import FakeClock
from nanobot.upkeep.heap import NEW_OBJECTS, Heap


class Circle:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    usual = gc.get_threshold()
    gc.set_threshold(NEW_OBJECTS)
    yield
    gc.set_threshold(*usual)
    gc.unfreeze()


def much_is_made() -> list[list[int]]:
    return [[number] for number in range(50_000)]


def test_where_much_was_made_what_refers_to_itself_is_let_go() -> None:
    heap, circle = Heap(FakeClock()), Circle()
    gone = weakref.ref(circle)
    much_is_made()
    del circle
    assert heap.release_memory()
    assert gone() is None


def test_where_little_was_made_nothing_is_done() -> None:
    heap = Heap(FakeClock())
    assert not heap.release_memory()
    much_is_made()
    assert heap.release_memory()
    assert not heap.release_memory()
