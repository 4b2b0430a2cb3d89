"""What holds for all tests: a failure is shown with the warnings of the log, not with all of it.

Writing every debug line took a tenth of the time of tests that run a whole nanobot. A test that
reads the log adds a sink of its own.
"""

from __future__ import annotations

import sys

from loguru import logger


def _to_standard_error(message: str) -> None:
    sys.stderr.write(message)  # the one of the test that runs, which pytest has put in place


logger.remove()
logger.add(_to_standard_error, level="WARNING")
