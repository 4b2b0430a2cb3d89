"""Writing config.yaml from a tree of settings, with comments, and making sure that it can be used.

What nanobot would refuse is taken out and told about, so that it starts; it stays readable in the
original.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml

from nanobot.config.document import ConfigErrors
from nanobot.config.load import load_settings
from nanobot.errors import ConfigError
from nanobot.importing.foreign import Secrets
from nanobot.importing.report import Report
from nanobot.importing.settings import Tree, Value
from nanobot.security.names import printable

_HEAD = """\
# Settings of nanobot, taken over from HKUDS/nanobot by `nanobot import`. Whatever is not here has
# its default; config.example.yaml shows every setting, docs/configuration.md explains them.
#
# ${NAME} takes a value from the environment or from secrets.env beside this file.
"""
_COMMENTS: Mapping[str, str] = {
    "model": "The language model: any server with an OpenAI-compatible API.",
    "agent": "How it works.",
    "memory": "What is remembered, and when.",
    "dream": "Learning from what was said, at quiet times.",
    "tools": "What it may use.",
    "mcp": "Servers that bring tools of others. They are shut in: docs/mcp.md.",
    "heartbeat": "Looking, again and again, at what HEARTBEAT.md asks for.",
    "skills": "Skills that are left out.",
    "owner": "Your own ids on each channel: what you say there goes into your memory.",
    "channels": "The channels to run.",
}
_LINES = re.compile(r"[\n\t]")
_ANYTHING = "0:unknown"
"""Stands for the value of a variable that is not at hand; most checks let it pass."""


def as_yaml(tree: Tree) -> str:
    """The text of config.yaml."""
    blocks = [_HEAD]
    for name, value in tree.items():
        text = yaml.safe_dump({name: value}, sort_keys=False, allow_unicode=True, width=100)
        blocks.append(f"# {_COMMENTS[name]}\n{text}")
    return "\n".join(blocks)


def usable(tree: Tree, secrets: Secrets, report: Report) -> str:
    """config.yaml with everything in it that nanobot takes. Changes `tree`."""
    _strip(tree, report)
    while True:
        text = as_yaml(tree)
        wrong = _problems(text, secrets)
        left_out = [_without(tree, error, report) for error in wrong]
        if not any(left_out):
            break
    for error in wrong:
        report.ask(f"Mend config.yaml, which cannot be used as it is: {_said(error)}.")
    return text


def _strip(branch: dict[str, Value], report: Report, above: str = "") -> None:
    """Take out what holds characters that no configuration may."""
    for key, value in list(branch.items()):
        path = f"{above}{printable(key)}"
        if isinstance(value, dict):
            _strip(value, report, f"{path}.")
        texts = [key, value, *(value if isinstance(value, list) else ())]
        if not all(_LINES.sub("", one).isprintable() for one in texts if isinstance(one, str)):
            del branch[key]
            report.changed(f"{path} was left out: a character in it cannot be seen.")


def _problems(text: str, secrets: Secrets) -> tuple[ConfigError, ...]:
    """What is wrong with it. Of variables that are set somewhere else, all is well."""
    elsewhere = {name: os.environ.get(name, _ANYTHING) for name in secrets.awaited}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for name, content in (("config.yaml", text), ("secrets.env", secrets.as_text())):
            (home / name).write_text(content, "utf-8")
            (home / name).chmod(0o600)
        try:
            load_settings(home, elsewhere)
        except ConfigErrors as errors:
            return errors.problems
        except ConfigError as error:
            return (error,)
    return ()


def _without(tree: Tree, error: ConfigError, report: Report) -> bool:
    """Take out the key that `error` is about, or the nearest one around it; whether there was
    one."""
    branch: Value = tree
    trail: list[tuple[dict[str, Value], str]] = []
    for key in error.key.split("."):
        name = key.partition("[")[0]
        if not isinstance(branch, dict) or name not in branch:
            break
        trail.append((branch, name))
        branch = branch[name]
    if not trail:
        return False
    parent, name = trail[-1]
    del parent[name]
    for above, key in reversed(trail[:-1]):
        if not above[key]:
            del above[key]
    report.changed(f"{'.'.join(key for _, key in trail)} was left out: {_said(error)}.")
    return True


def _said(error: ConfigError) -> str:
    return str(error).removeprefix(f"{error.file}:{error.line}: ").removeprefix(f"{error.file}: ")
