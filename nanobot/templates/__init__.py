"""Prompts as files, so that they read as text and not as code."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from string import Template


def render(name: str, **values: str) -> str:
    """The file `name` of this folder with each `$value` filled in. Raises KeyError for a missing
    one."""
    return _template(name).substitute(values)


@cache
def _template(name: str) -> Template:
    return Template(Path(__file__).with_name(name).read_text(encoding="utf-8"))
