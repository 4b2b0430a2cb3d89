"""Writing config.yaml from a tree of settings, and making sure that it can be used.

What nanobot would refuse is taken out and told about, so that it starts; it stays readable in the
original.
"""

from __future__ import annotations

import os
import re
import tempfile
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
_LINES = re.compile(r"[\n\t]")
_ANYTHING = "0:unknown"
"""Stands for the value of a variable that is not at hand; most checks let it pass."""


def usable(tree: Tree, secrets: Secrets, report: Report) -> str:
    """config.yaml with everything in it that nanobot takes. Changes `tree`."""
    _strip(tree, report)
    while True:
        text = _HEAD + yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=100)
        wrong = _problems(text, secrets)
        left_out = [_without(tree, error, report) for error in wrong]
        if not any(left_out):
            break
    for error in wrong:
        report.ask(f"Fix config.yaml, which cannot be used as it is: {_said(error)}.")
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
    branch, path, parent = tree, list[str](), tree
    for key in error.key.split("."):
        name = key.partition("[")[0]
        if name not in branch:
            break
        parent, inner = branch, branch[name]
        path.append(name)
        branch = inner if isinstance(inner, dict) else {}
    if not path:
        return False
    del parent[path[-1]]
    report.changed(f"{'.'.join(path)} was left out: {_said(error)}.")
    return True


def _said(error: ConfigError) -> str:
    return str(error).removeprefix(f"{error.file}:{error.line}: ").removeprefix(f"{error.file}: ")
