"""tiktoken's tables for the tests that need them. All others run without.

With them a process that takes seconds to start counts a prompt near its budget, and without them an
estimate does. The choice must not depend on the machine or its network."""

from __future__ import annotations

import os
from pathlib import Path

_CACHE, _GIVEN = "TIKTOKEN_CACHE_DIR", "ENCODINGS_OF_TESTS"
ENCODINGS = Path(
    os.environ.get(_GIVEN) or os.environ.get(_CACHE, "../shared/data/tiktoken")
).resolve()
NOWHERE = "http://127.0.0.1:9"
"""A proxy address without a listener."""


def take_away() -> None:
    """Remove the tables from this process and its children, and prevent downloads."""
    os.environ[_GIVEN] = str(ENCODINGS)  # for the workers that this process starts
    os.environ[_CACHE] = str(Path(__file__).with_name("no-encodings"))
    os.environ["https_proxy"] = os.environ["HTTPS_PROXY"] = NOWHERE
