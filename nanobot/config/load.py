"""Loading: the files are read, variables put in, overrides laid over, and everything checked.

Precedence, the strongest first: `NANOBOT_SECTION__KEY`, `config.yaml`, the default. A key whose
value is empty counts as left out. `secrets.env` stands in for variables that the environment lacks.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from msgspec.structs import replace

from nanobot.config import home_folder
from nanobot.config.document import ENVIRONMENT, ConfigDocument, ConfigPlace, Value, read_own_file
from nanobot.config.model import NamedModels, fill_side_model
from nanobot.config.settings import (
    BY_CHANNEL,
    BY_NAME,
    SECTIONS,
    Settings,
    keys_of,
)
from nanobot.config.values import secrets_in
from nanobot.validation import KeyPath, format_key, nearest, suggestion

CONFIG_FILE = "config.yaml"
SECRETS_FILE = "secrets.env"


def load_settings(
    home: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    texts: Mapping[str, str] | None = None,
) -> Settings:
    """The settings of `home`, which is that of `home_folder(environ)` where none is given.

    The files are those in there, or `texts` in place of them, by name; none has to exist. Raises
    `ConfigError`, one for all problems together.
    """
    return load_with_places(home, environ, texts=texts)[0]


def load_with_places(
    home: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    texts: Mapping[str, str] | None = None,
) -> tuple[Settings, ConfigDocument]:
    """As `load_settings`, with the document that says where each value was written."""
    home = (home or home_folder(environ)).absolute()
    document = ConfigDocument(str(home / CONFIG_FILE), home, texts)
    variables = _read_secrets(home / SECRETS_FILE, document)
    for name, value in environ.items():
        variables[name] = Variable(value, ConfigPlace(ENVIRONMENT, variable=name))
    text, exposed = read_own_file(home / CONFIG_FILE, document) or ("", False)
    if text:
        from nanobot.config.yamltext import parse_config  # PyYAML, not needed without a file

        parse_config(text, document)
    if document.is_broken:
        document.raise_if_any()
    referred = _expand(document, variables, home / SECRETS_FILE)
    _override(document, {name: one for name, one in variables.items() if name not in referred})
    settings = _check(document)
    if exposed:
        _warn_of_literal_secrets(document, settings)
    return replace(settings, warnings=document.warnings), document


_ENTRY = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)", re.DOTALL)


def parse_env_line(line: str) -> tuple[str, str] | None:
    """The name and the value in a line of secrets.env, with `export` before and quotes around taken
    off; None where there are none."""
    found = _ENTRY.fullmatch(line)
    return (found[1], _unquote(found[2].strip())) if found else None


def parse_env_file(text: str) -> dict[str, str]:
    return dict(filter(None, map(parse_env_line, text.splitlines())))


def update_env_file(text: str, values: Mapping[str, str]) -> str:
    """`text` with these values in it; other lines stay as they are. Raises `ValueError` for a value
    that does not fit."""
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    for name, value in values.items():
        if not value.isprintable():  # a line break would let it say more than itself
            raise ValueError(f"{name} does not fit on a line")
        known = [at for at, line in enumerate(lines) if (parse_env_line(line) or ("",))[0] == name]
        at = known[0] if known else len(lines)
        lines[at : at + 1] = [f"{name}={_quote(value)}\n"]
    return "".join(lines)


def _quote(value: str) -> str:
    """A value whose own quotes, or blanks at its ends, are not taken for the file's."""
    if value == value.strip() and _unquote(value) == value:
        return value
    return f"'{value}'" if '"' in value else f'"{value}"'


def _unquote(value: str) -> str:
    quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


PREFIX = "NANOBOT_"
HOME = "NANOBOT_HOME"
DEBUG = "NANOBOT_DEBUG"
"""Makes the command line show where an unexpected error came from; no setting, but ours."""

_REFERENCE = re.compile(r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)\})?")


class Variable(NamedTuple):
    """A variable and where it was set."""

    value: str
    place: ConfigPlace


def _read_secrets(path: Path, document: ConfigDocument) -> dict[str, Variable]:
    """KEY=VALUE lines; `#` begins a comment."""
    text, exposed = read_own_file(path, document) or ("", False)
    variables: dict[str, Variable] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip()[:1] in ("", "#"):
            continue
        name, value = parse_env_line(line) or ("", "")
        place = ConfigPlace(str(path), number)
        if not name:
            hint = "Write one NAME=value per line."
            document.problem_at(place, "", "is not a NAME=value line", hint)
        elif name in variables:
            document.problem_at(place, name, "appears twice", "Remove one of them.")
        elif name == HOME:
            hint = "Set it in the environment, because it selects the folder of this file."
            document.problem_at(place, name, "cannot be set here", hint)
        else:
            variables[name] = Variable(value, ConfigPlace(str(path), number, name))
    if exposed and variables:
        hint = f"Run `chmod 600 {shlex.quote(str(path))}`."
        document.warn_at(
            ConfigPlace(str(path)), "", "contains secrets that other users can read", hint
        )
    return variables


def _expand(
    document: ConfigDocument, variables: Mapping[str, Variable], secrets: Path
) -> Collection[str]:
    """Put variables in place of `${NAME}` in all values, keys excepted; `$${` stands for `${`. The
    names of those that are referred to."""
    referred = set[str]()

    def expand(value: Value, path: KeyPath) -> Value:
        match value:
            case str() if "${" in value:
                return _REFERENCE.sub(lambda match: replacement(match, path), value)
            case list():
                return [expand(item, (*path, index)) for index, item in enumerate(value)]
            case dict():
                return {key: expand(item, (*path, key)) for key, item in value.items()}
        return value

    def replacement(match: re.Match[str], path: KeyPath) -> str:
        if match[0] == "$${":
            return "${"
        document.from_variables.add(path)
        name = match["name"] or ""
        referred.add(name)
        if name in variables:
            return variables[name].value
        message = "'${' is not followed by a variable's name"
        hint = "Write ${NAME} with letters, digits, and '_', or $${ for the characters ${."
        if name:
            message = f"the variable {name} is not set"
            near = nearest(name, variables)
            start = f"Did you mean {near}? Otherwise set" if near else "Set"
            hint = f"{start} it in the environment, or add a line {name}=… to {secrets}."
        document.problem_at(document.place(path), format_key(path), message, hint)
        # Never looked at: the problem stops everything. Not empty, or it would seem left out.
        return "unknown"

    document.values = {key: expand(value, (key,)) for key, value in document.values.items()}
    return referred


def variable_for(path: Sequence[str]) -> str:
    """The variable that overrides the key at `path`."""
    return PREFIX + "__".join(path).upper()


def _override(document: ConfigDocument, variables: Mapping[str, Variable]) -> None:
    """Put the values of NANOBOT_… variables over the document's.

    Beneath `models`, `channels` and `owner` any key is let through; they are checked later.
    """
    paths: dict[str, Sequence[str]] = {
        variable_for(path): path
        for name, model in SECTIONS.items()
        for path, _ in keys_of(model, (name,))
    }
    ours = {name for name in variables if name.startswith(PREFIX)} - {HOME, DEBUG}
    for name in sorted(ours):
        value, place = variables[name]
        if path := paths.get(name) or _path_of_entry(name):
            from nanobot.config.yamltext import parse_override  # brings PyYAML: rarely needed

            document.override(path, parse_override(value, place, tuple(path), document), place)
        else:
            ends = [one.removeprefix(PREFIX) for one in (*paths, HOME)]
            near = nearest(name.removeprefix(PREFIX), ends)
            hint = f"Did you mean {PREFIX}{near}?" if near else "See `nanobot config schema`."
            document.problem_at(place, name, "this variable matches no key", hint)


def _path_of_entry(name: str) -> Sequence[str]:
    path = name.removeprefix(PREFIX).lower().split("__")
    least, most = {"owner": (2, 2), "models": (2, 4), "channels": (3, 20)}.get(path[0], (0, 0))
    return path if least <= len(path) <= most and all(path) else ()


def _check(document: ConfigDocument) -> Settings:
    """Raises `ConfigError` where anything is wrong."""
    for key in document.values:
        if key not in SECTIONS and key not in BY_NAME:
            hint = suggestion(key.partition(".")[0], [*SECTIONS, *BY_NAME])
            document.problem((key,), "there is no such key", hint)
    sections: dict[str, Any] = {
        name: document.check(model, document.section((name,)), (name,))
        for name, model in SECTIONS.items()
    }
    if models := document.section(("models",)):
        named = document.check(NamedModels, {"models": models}, ())
        sections["models"] = named.models if named else {}
    if any(document.section((name,)) for name in BY_CHANNEL):
        from nanobot.config.channels import check_channels, check_owner  # read installed packages

        sections |= {"owner": check_owner(document), "channels": check_channels(document)}
    document.raise_if_any()
    # Every part is checked; checking the whole again would cost a tenth of the start-up time.
    settings = _fill_sections(Settings(home=document.home, **sections))
    for fault in settings.faults(document.home):
        document.problem(fault.key, fault.message, fault.hint)
    document.raise_if_any()
    return settings


def _fill_sections(settings: Settings) -> Settings:
    """The settings with what sections take from each other."""
    model, memory, http = settings.model, settings.memory, settings.http
    embeddings = fill_side_model(memory.embeddings, model.base_url, model.api_key)
    # Under which platforms call channels.
    running = [channel.options for channel in settings.channels.values() if channel.enabled]
    urls = [urlsplit(str(getattr(options, "webhook_url", ""))) for options in running]
    hosts = (*http.public_hosts, *(url.hostname for url in urls if url.hostname))
    return replace(
        settings,
        model=model.fill_side_models(),
        memory=replace(memory, embeddings=embeddings),
        http=replace(http, public_hosts=tuple(dict.fromkeys(hosts))),
    )


def _warn_of_literal_secrets(document: ConfigDocument, settings: Settings) -> None:
    """Warn of secrets that are written out in a file that others may read."""
    for steps, _ in secrets_in(settings):
        path = steps
        if steps[0] == "channels":  # an adapter's own settings stand beside the common ones
            path = tuple(step for step in steps if step != "options")
        place = document.place(path)
        if document.get(path) and path not in document.from_variables and not place.variable:
            message = "is in a file that other users can read"
            hint = f"Run `chmod 600 {shlex.quote(place.file)}`."
            document.warn_at(place, format_key(path), message, hint)
