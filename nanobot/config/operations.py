"""The configuration for a page in a browser: what there is, what a change would do, and doing it.

Invariants: no secret is sent; what is written is what the plan was made for (its `hash` goes
along), can be loaded, and widens nothing: such changes are made in the terminal.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from inspect import cleandoc

from msgspec.structs import replace

from nanobot.channel import Operation
from nanobot.commands import in_threads, text_argument
from nanobot.config.changing import (
    ConfigEdit,
    ConfigPlan,
    ExistingFiles,
    plan,
    widens_security,
    write,
)
from nanobot.config.keys import KeyInfo, list_keys
from nanobot.config.load import load_with_places
from nanobot.config.settings import SECTIONS, Settings
from nanobot.config.yamltext import ConfigChange, Setting
from nanobot.errors import ConfigError, NanobotError

Request = Mapping[str, object]
Answered = dict[str, object]

TERMINAL_ONLY = "Change it in the terminal: `nanobot config set {} …`."


class ConfigOperations:
    """The operations named `config.…`, on the files of the home that runs with `running`."""

    def __init__(self, running: Settings, environ: Mapping[str, str] = os.environ) -> None:
        self._home, self._running, self._environ = running.home, running, environ

    def table(self) -> Mapping[str, Operation]:
        """By name, as they are called over the socket; each works in a thread."""
        return in_threads(
            {"config.show": self._show, "config.plan": self._plan, "config.apply": self._apply}
        )

    def _show(self, _: Request) -> Answered:
        """No arguments. `keys` are all of them, `sections` what they are about; with
        `restart_needed` the files say something else than what runs."""
        before = ExistingFiles.read(self._home, self._environ)
        settings, document = load_with_places(self._home, self._environ)
        return {
            "keys": [key_data(one) for one in list_keys(settings, document)],
            "sections": {name: cleandoc(model.__doc__ or "") for name, model in SECTIONS.items()},
            "warnings": list(settings.warnings),
            "restart_needed": replace(settings, warnings=()) != replace(self._running, warnings=()),
            "hash": before.digest,
        }

    def _plan(self, arguments: Request) -> Answered:
        """`changes`: values by key such as `{"agent.on_busy": "queue"}`; null takes a key out.
        What they would do to the files: the `diff` as lines, `errors` that keep them from being
        written, `warnings`, and under `widens_security` the keys that `apply` refuses."""
        planned, before = self._planned(arguments)
        return {
            "diff": list(planned.lines),
            "errors": [_error(one) for one in planned.errors],
            "warnings": list(planned.warnings),
            "widens_security": list(planned.widening),
            "hash": before.digest,
        }

    def _apply(self, arguments: Request) -> Answered:
        """`changes` as for `plan`, and `expected`, the `hash` that it gave. They count once
        nanobot is started again."""
        planned, before = self._planned(arguments, text_argument(arguments, "expected"))
        if planned.widening:
            key = planned.widening[0]
            raise NanobotError(
                f"{key} decides about security and is not changed from here",
                hint=TERMINAL_ONLY.format(key),
            )
        if planned.errors:
            said = "\n".join(error.for_people() for error in planned.errors)
            raise NanobotError(f"the configuration would be wrong:\n{said}")
        if planned.edit.changes:
            write(self._home, before, planned.edit)
        changed = [".".join(one.path) for one in planned.edit.changes]
        return {"changed": changed, "diff": list(planned.lines), "restart_needed": bool(changed)}

    def _planned(self, arguments: Request, expected: str = "") -> tuple[ConfigPlan, ExistingFiles]:
        changes = arguments.get("changes")
        if not isinstance(changes, Mapping) or not changes:
            raise NanobotError("the operation needs values by key in 'changes'")
        edit = ConfigEdit(tuple(change_of(str(key), value) for key, value in changes.items()))
        before = ExistingFiles.read(self._home, self._environ)
        if expected not in ("", before.digest):
            raise NanobotError(
                "the configuration was changed meanwhile", hint="Look at it again, and once more."
            )
        return plan(self._home, before, edit), before


def key_data(info: KeyInfo) -> Answered:
    """A key for machines."""
    return {
        "key": info.name,
        "type": info.kind,
        "value": info.value,
        "default": info.default,
        "source": info.source,
        "line": info.line,
        "variable": info.variable,
        "description": info.description,
        "choices": list(info.choices),
        "terminal_only": widens_security(info.path),
    }


def _error(error: ConfigError) -> Answered:
    return {"key": error.key, "line": error.line, "message": error.message, "hint": error.hint}


def change_of(key: str, value: object) -> ConfigChange:
    """The change of a dotted key to a value as JSON has it. Raises `NanobotError`."""
    path = tuple(key.split("."))
    if not all(path) or len(path) < 2:
        raise NanobotError(f"{key!r} is not the name of a key", hint="Write it like agent.on_busy.")
    return ConfigChange(path, _setting(value))


def _setting(value: object) -> Setting:
    match value:
        case None | str() | bool() | int() | float():
            return value
        case list():
            return tuple(map(_setting, value))
        case Mapping():
            return {str(key): _setting(item) for key, item in value.items()}
    raise NanobotError("a value is a text, a number, true, false, a list or a mapping")
