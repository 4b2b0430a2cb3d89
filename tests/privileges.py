"""Being an ordinary user for a while, also where the tests run as root, whom no file refuses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_NOBODY = 65_534


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root is somebody else; anybody else stays who they are."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
