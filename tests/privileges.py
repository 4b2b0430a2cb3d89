"""Temporary drop of root's privileges, because no file rejects root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_NOBODY = 65_534


@contextmanager
def without_privileges() -> Iterator[None]:
    """Change from root to another user. Other users stay the same."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
