"""`nanobot config`: show the settings, and change them after a check and a diff.

    config get [KEY]                             a key, a section, or everything
    config set [KEY VALUE…] [--secret KEY]…      several values are a list; a secret is prompted
                                                 for and stored in secrets.env
    config unset KEY                             reset the key to its default

A VALUE that begins with `[`, `{` or a quote is read as YAML, any other as text.

Invariants: no change makes a valid configuration invalid or adds an error to a broken one. Comments
are kept. No secret is read from the command line or shown."""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot.cli.command import (
    Options,
    Parser,
    WrongUsage,
    confirm_change,
    indent,
    print_json,
    print_text,
    settings_of,
    table,
    words,
    write_stdout,
)
from nanobot.errors import ConfigError, NanobotError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nanobot.config.changes import ConfigEdit, ConfigPlan, ExistingFiles
    from nanobot.config.schema import KeyInfo
    from nanobot.validation import KeyPath

_CAREFUL = (
    "careful: these settings can give others access or send data elsewhere: {} (docs/security.md)\n"
)
_EXAMPLE = "config.example.yaml"
_TRUTH = {"yes": "true", "on": "true", "no": "false", "off": "false"}


def add_config(config: Parser) -> None:
    what = config.group()
    get = what.add("get", "show a setting, a section, or all settings", print_settings).json()
    get.argument("key", "KEY", "a setting, such as model.name, or a section", nargs="?", default="")
    new = what.add("set", "change a setting (shows the change and asks first)", set_settings)
    new.argument("key", "KEY", "the setting, such as agent.on_busy", nargs="?", default="")
    new.argument("values", "VALUE", "the new value (several values make a list)", nargs="*")
    asked = "prompt for the value of this secret setting and store it in secrets.env (repeatable)"
    new.option("--secret", "KEY", asked, action="append", default=[])
    unset = what.add("unset", "reset a setting to its default", unset_setting)
    unset.argument("key", "KEY", "the setting, such as agent.on_busy", type=words)
    for command in (new, unset):
        command.yes().json()
    what.add("example", "print a config.yaml with all settings and defaults", print_example)
    what.add("check", "check whether config.yaml is valid", check_config)
    what.add("schema", "print the JSON Schema of config.yaml", print_schema)


def check_config(options: Options) -> int:
    """Print the warnings. Raises `ConfigError`."""
    path = options.home / "config.yaml"
    for warning in settings_of(options.home).warnings:
        print_text(f"warning: {warning}\n")
    where = f"{path} is valid" if path.exists() else f"{path} does not exist, so the defaults apply"
    return print_text(f"ok: {where}.\n")


def print_example(_: Options) -> int:
    """Print the example in the installed package, or next to the package in a checkout."""
    import nanobot

    package = Path(nanobot.__file__).parent
    for path in (package / _EXAMPLE, package.parent / _EXAMPLE):
        if path.is_file():
            return write_stdout(path.read_text("utf-8"))
    raise NanobotError(f"{package / _EXAMPLE} is missing", hint="Reinstall nanobot.")


def print_schema(_: Options) -> int:
    from nanobot.config.schema import config_schema

    return print_json(config_schema())


def print_settings(options: Options) -> int:
    """Print only the value of a key, for scripts, or a section as a table."""
    from nanobot.config.changes import key_data
    from nanobot.config.load import load_with_places
    from nanobot.config.schema import list_keys
    from nanobot.validation import suggestion

    known = list(list_keys(*load_with_places(options.home)))
    wanted = tuple(options.key.split(".")) if options.key else ()
    found = [one for one in known if one.path[: len(wanted)] == wanted]
    is_key = bool(found) and found[0].path == wanted
    if not found:
        names = [one.key if "." in options.key else one.path[0] for one in known]
        hint = suggestion(options.key, list(dict.fromkeys(names)))
        raise NanobotError(f"there is no key {options.key}", hint=hint)
    if is_key:
        return options.print_either(
            key_data(found[0]), lambda: _format_value(found[0].value) + "\n"
        )
    rows = ((one.key, _format_value(one.value), _source_of(one)) for one in found)
    shown = table(rows, "key", "value", "from")
    return options.print_either([*map(key_data, found)], lambda: shown)


def _format_value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _source_of(info: KeyInfo) -> str:
    return info.variable or (f"{info.source}:{info.line}" if info.line else info.source)


def set_settings(options: Options) -> int:
    """Change a key and prompt for secrets. Raises `NanobotError` if nothing is written."""
    from nanobot.config.changes import ConfigEdit, ExistingFiles, change_of

    if not (options.key or options.secret):
        raise WrongUsage("a key is required", hint="`nanobot config get` lists all keys.")
    if options.key and not options.values:
        hint = f"For a secret, use `--secret {options.key}`."
        raise WrongUsage(f"{options.key} needs a value", hint=hint)
    options.expect_consent()
    before = ExistingFiles.read(options.home, os.environ)
    edit = ConfigEdit()
    if options.key:
        path = change_of(options.key, None).path
        value = parse_value(path, options.values)
        expect_no_secret(path, value)
        edit = ConfigEdit((change_of(options.key, value),))
    for key in options.secret:
        edit = _with_secret(edit, before, key)
    return change_config(options, before, edit)


def unset_setting(options: Options) -> int:
    from nanobot.config.changes import ConfigEdit, ExistingFiles, change_of

    before = ExistingFiles.read(options.home, os.environ)
    return change_config(options, before, ConfigEdit((change_of(options.key, None),)))


def change_config(
    options: Options, before: ExistingFiles, edit: ConfigEdit, counts: str = ""
) -> int:
    """Show the changes of `edit`, ask, and write them. Return 1 if the answer is no. `counts` is
    the sentence about when they take effect, by default at the next start. Raises
    `NanobotError`."""
    from nanobot.app.base import make_home
    from nanobot.config.changes import ConfigEdit, plan, write

    options.expect_consent()
    planned = plan(options.home, before, edit)
    if planned.errors:  # old errors may stay, to be fixed one by one
        _refuse_new(planned.errors, plan(options.home, before, ConfigEdit()).errors)
    if not (planned.edit.changes or planned.edit.secrets):
        return _print_report(options, planned, "Nothing to change.\n")
    if not options.json:
        print_text(_render_plan(options.home, planned))
    if not options.yes and not confirm_change("\nSave these changes?"):
        return 1
    make_home(options.home)
    write(options.home, before, planned.edit)
    return _print_report(options, planned, f"Saved. {counts or _describe_start(options.home)}\n")


def _refuse_new(errors: Sequence[ConfigError], before: Sequence[ConfigError]) -> None:
    known = {(one.key, one.message) for one in before}
    if new := [one for one in errors if (one.key, one.message) not in known]:
        said = "\n".join(one.for_people() for one in new)
        raise ConfigError(
            f"nothing was changed, because the configuration would not be valid:\n{said}"
        )


def format_diff(home: Path, planned: ConfigPlan) -> str:
    """Return the changed lines of both files, without secrets."""
    from nanobot.config.load import CONFIG_FILE, SECRETS_FILE

    secrets = [f"+{name}=…" for name in planned.edit.secrets]
    files = ((CONFIG_FILE, planned.lines), (SECRETS_FILE, secrets))
    return "".join(f"{home / name}\n" + indent("\n".join(lines)) for name, lines in files if lines)


def _render_plan(home: Path, planned: ConfigPlan) -> str:
    shown = format_diff(home, planned)
    shown += "".join(f"still not valid: {error}\n" for error in planned.errors)
    shown += "".join(f"warning: {warning}\n" for warning in planned.warnings)
    changes = planned.edit.changes
    amounts = {".".join(one.path) for one in changes if type(one.value) in (int, float)}
    keys = [".".join(key.split(".")[:3]) for key in planned.widening if key not in amounts]
    if keys:
        shown += _CAREFUL.format(", ".join(dict.fromkeys(keys)))
    return shown


def _describe_start(home: Path) -> str:
    from nanobot.cli.status import of_gateway
    from nanobot.config import command_for

    if of_gateway(home) is None:
        return "The change takes effect when nanobot next starts."
    return f"Restart the gateway to apply it: `{command_for(home)} agent -m /restart`"


def _print_report(options: Options, planned: ConfigPlan, said: str) -> int:
    report = {
        "changed": [".".join(one.path) for one in planned.edit.changes],
        "secrets": list(planned.edit.secrets),
        "diff": list(planned.lines),
        "warnings": list(planned.warnings),
    }
    return options.print_either(report, lambda: said)


def parse_value(path: KeyPath, texts: Sequence[str]) -> object:
    """Convert the words that a person typed to the type of the key at `path`. If they do not fit,
    return the text, so that the check explains the error. Raises `NanobotError`."""
    from nanobot.config.document import ConfigDocument, ConfigPlace
    from nanobot.config.load import parse_override
    from nanobot.config.schema import kind_of, schema_at

    if len(texts) > 1:
        return list(texts)
    place = ConfigPlace("the command line")
    document = ConfigDocument(place.file)
    value = parse_override(texts[0], place, path, document)
    document.raise_if_any()
    if not isinstance(value, str):
        return value or ""
    kind = kind_of(schema_at(path))
    if kind == "boolean":
        value = _TRUTH.get(value.lower(), value)
    if kind in ("integer", "number", "boolean"):
        with suppress(ValueError):
            return json.loads(value.lower())
    return [value] if kind == "list" else value


def expect_no_secret(path: KeyPath, value: object) -> None:
    """Raise `NanobotError` if a secret would be written to config.yaml."""
    from nanobot.config.schema import is_hidden, kind_of, schema_at
    from nanobot.security.redaction import keys_in

    for at, text in _walk_texts(path, value):
        if keys_in(text) or (kind_of(schema_at(at)) == "secret" and is_hidden(at, text)):
            key = ".".join(map(str, at))
            hint = (
                f"`nanobot config set --secret {key}` prompts for it and stores it in secrets.env."
            )
            if any(isinstance(step, int) for step in at):
                hint = "Put it into secrets.env, and write ${NAME} in config.yaml."
            raise NanobotError(
                f"{key} is a secret, and secrets do not belong in config.yaml", hint=hint
            )


def _walk_texts(path: KeyPath, value: object) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _walk_texts((*path, key), item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _walk_texts((*path, index), item)


def _with_secret(edit: ConfigEdit, before: ExistingFiles, key: str) -> ConfigEdit:
    """Add a secret that the person types, or that is a line of standard input."""
    from nanobot.cli.onboard.people import read_secret
    from nanobot.config.changes import ConfigEdit, change_of
    from nanobot.config.schema import kind_of, schema_at
    from nanobot.config.yamltext import ConfigChange

    path = change_of(key, None).path
    if kind_of(schema_at(path)) != "secret":
        hint = "`nanobot config get` lists all keys."
        raise NanobotError(f"{key} is not a secret", hint=hint)
    value = ""
    with suppress(EOFError):
        is_terminal = sys.stdin.isatty()
        value = read_secret(f"{key}: ") if is_terminal else sys.stdin.readline().strip()
    if not value:
        raise NanobotError(f"no value was given for {key}, so nothing was changed")
    # The usual name of the variable: its section and key.
    steps = [step for step in path if step not in ("channels", "servers", "env", "headers")]
    usual = re.sub(r"[^A-Z0-9]", "_", "_".join(steps).upper())
    name = before.variable(path, usual, value)
    change = ConfigChange(path, f"${{{name}}}")
    return ConfigEdit((*edit.changes, change), {**edit.secrets, name: value})
