"""Where tiktoken's tables lie for the tests that need them; all others do without.

With them a prompt near its budget is counted by a process that takes seconds to begin, and without
them by an estimate: which of the two must not depend on the machine, nor on its network.
"""

from __future__ import annotations

import os
from pathlib import Path

_CACHE, _GIVEN = "TIKTOKEN_CACHE_DIR", "ENCODINGS_OF_TESTS"
ENCODINGS = Path(
    os.environ.get(_GIVEN) or os.environ.get(_CACHE, "../shared/data/tiktoken")
).resolve()
NOWHERE = "http://127.0.0.1:9"
"""A proxy where nothing listens."""


def take_away() -> None:
    """Leave this process and those that it starts without the tables, and no way to fetch them."""
    os.environ[_GIVEN] = str(ENCODINGS)  # for the workers that this process starts
    os.environ[_CACHE] = str(Path(__file__).with_name("no-encodings"))
    os.environ["https_proxy"] = os.environ["HTTPS_PROXY"] = NOWHERE
