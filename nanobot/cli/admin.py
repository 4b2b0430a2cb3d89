"""Commands that look and mend: turn, queue, config, completion."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from nanobot.cli.reach import operate
from nanobot.cli.show import fitted, queue_text, text, turn_text
from nanobot.errors import NanobotError


def turn_show(home: Path, turn_id: str, *, as_json: bool) -> int:
    """`nanobot turn show ID`."""
    data = asked(home, "turn.show", {"id": turn_id})
    return put(to_json(data) if as_json else fitted(turn_text(data)))


def queue_list(home: Path, *, as_json: bool) -> int:
    """`nanobot queue list`."""
    data = asked(home, "queue.list", {})
    return put(to_json(data) if as_json else queue_text(data))


def queue_change(home: Path, change: str, entry_id: str, *, as_json: bool) -> int:
    """`nanobot queue retry|drop ID`."""
    data = asked(home, f"queue.{change}", {"id": entry_id})
    return put(to_json(data) if as_json else fitted(text(data, "text")) + "\n")


def config_check(home: Path) -> int:
    """`nanobot config check`: raises `ConfigError` for what is wrong, prints what is doubtful."""
    from nanobot.config.load import load_settings

    settings = load_settings(home)
    for warning in settings.warnings:
        put(fitted(f"warning: {warning}\n"))
    path = home / "config.yaml"
    where = f"{path} can be used" if path.exists() else f"there is no {path}; the defaults apply"
    return put(fitted(f"ok: {where}.\n"))


def config_schema() -> int:
    """`nanobot config schema`."""
    from nanobot.config.schema import config_schema as schema

    return put(to_json(schema()))


def completion(parser: argparse.ArgumentParser, shell: str) -> int:
    """`nanobot completion SHELL`: the script that makes that shell complete our commands."""
    import shtab

    return put(str(shtab.complete(parser, shell)) + "\n")


def put(output: str) -> int:
    """Print a result; returns the exit code of success."""
    sys.stdout.write(output)
    return 0


def said_yes(question: str) -> bool:
    """Ask whoever sits at the terminal; whatever is not a yes is a no."""
    sys.stdout.write(f"{question} [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def to_json(data: object) -> str:
    """JSON for machines that people can read too; ASCII, so that no terminal is moved by it."""
    return json.dumps(data, indent=2) + "\n"


def asked(home: Path, operation: str, arguments: Mapping[str, object]) -> dict[str, object]:
    """What an operation answers: in the gateway that runs, or here. Raises `NanobotError`."""
    data = operate(home, operation, arguments)
    if not isinstance(data, dict):
        raise NanobotError(f"the gateway's answer to {operation!r} makes no sense")
    return data
