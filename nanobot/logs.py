"""Where the log goes. Set up once per process, by whoever starts it; secrets never get there."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from loguru import logger

from nanobot.errors import StorageError
from nanobot.security.redaction import Redactor

LOG_FILE = "nanobot.log"


def log_to_console(level: str, redactor: Redactor) -> None:
    """For a service: everything from `level` on goes to standard error."""
    logger.remove()
    logger.add(sys.stderr, level=level.upper(), format=redactor.format)


def log_to_file(folder: Path, level: str, redactor: Redactor) -> None:
    """For a chat in a terminal, where log lines would be in the way: to `folder`/nanobot.log, kept
    to two files of 5 MB."""
    logger.remove()
    try:
        logger.add(
            folder / LOG_FILE,
            level=level.upper(),
            format=redactor.format,
            rotation="5 MB",
            retention=1,
            opener=_private,
        )
    except OSError as error:
        raise StorageError.of(folder / LOG_FILE, error) from error


def log_warnings(warnings: Sequence[str]) -> None:
    """What the owner should mend in the configuration."""
    for warning in warnings:
        logger.warning("{}", warning)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
