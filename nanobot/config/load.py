"""Loading: read the files, expand variables, apply overrides, and check everything.

Precedence, strongest first: `NANOBOT_SECTION__KEY`, `config.yaml`, the default. A key with an empty
value counts as left out. `secrets.env` supplies variables that the environment lacks."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
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
    """Return the settings of `home`, by default that of `home_folder(environ)`.

    Files are read from there, or from `texts` by name. None has to exist. Raise one `ConfigError`
    for all problems."""
    return load_with_places(home, environ, texts=texts)[0]


def load_with_places(
    home: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    texts: Mapping[str, str] | None = None,
) -> tuple[Settings, ConfigDocument]:
    """Return the settings like `load_settings`, and the document with the place of each value."""
    home = (home or home_folder(environ)).absolute()
    document = ConfigDocument(str(home / CONFIG_FILE), home, texts)
    variables = read_secrets(home / SECRETS_FILE, document)
    for name, value in environ.items():
        variables[name] = Variable(value, ConfigPlace(ENVIRONMENT, variable=name))
    text, exposed = read_own_file(home / CONFIG_FILE, document) or ("", False)
    if text:
        from nanobot.config.yamltext import parse_config  # loads PyYAML

        parse_config(text, document)
    if document.is_broken:
        document.raise_if_any()
    referred = expand_variables(document, variables, home / SECRETS_FILE)
    apply_overrides(
        document, {name: one for name, one in variables.items() if name not in referred}
    )
    settings = check_document(document)
    if exposed:  # other users can read the file
        warn_of_literal_secrets(document, settings)
    return replace(settings, warnings=document.warnings), document


_ENTRY = r"(?s)\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)"


def parse_env_line(line: str) -> tuple[str, str] | None:
    """Return name and value in a line of secrets.env, without `export` and quotes, or None."""
    found = re.fullmatch(_ENTRY, line)
    return (found[1], unquote_value(found[2].strip())) if found else None


def parse_env_file(text: str) -> dict[str, str]:
    return dict(filter(None, map(parse_env_line, text.splitlines())))


def update_env_file(text: str, values: Mapping[str, str]) -> str:
    """Return `text` with these values in it and other lines unchanged. Raise `ValueError` for a
    value that does not fit on a line."""
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    for name, value in values.items():
        if not value.isprintable():  # a line break could add other variables
            raise ValueError(f"{name} contains a line break or an invisible character")
        known = [at for at, line in enumerate(lines) if (parse_env_line(line) or ("",))[0] == name]
        at = known[0] if known else len(lines)
        lines[at : at + 1] = [f"{name}={quote_value(value)}\n"]
    return "".join(lines)


def quote_value(value: str) -> str:
    """Return a value quoted if its own quotes or outer blanks would be lost."""
    if value == value.strip() and unquote_value(value) == value:
        return value
    return f"'{value}'" if '"' in value else f'"{value}"'


def unquote_value(value: str) -> str:
    quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


PREFIX = "NANOBOT_"
HOME = "NANOBOT_HOME"
DEBUG = "NANOBOT_DEBUG"
"""Shows the traceback of unexpected errors in the command line. Not a setting."""

_REFERENCE = r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)\})?"


class Variable(NamedTuple):
    """A variable and its place."""

    value: str
    place: ConfigPlace


def read_secrets(path: Path, document: ConfigDocument) -> dict[str, Variable]:
    """Read KEY=VALUE lines. `#` begins a comment."""
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
            hint = "Set it in the environment, because it determines the folder of this file."
            document.problem_at(place, name, "cannot be set here", hint)
        else:
            variables[name] = Variable(value, ConfigPlace(str(path), number, name))
    if exposed and variables:
        hint = f"Run `chmod 600 {shlex.quote(str(path))}`."
        document.warn_at(
            ConfigPlace(str(path)), "", "contains secrets that other users can read", hint
        )
    return variables


def expand_variables(
    document: ConfigDocument, variables: Mapping[str, Variable], secrets: Path
) -> Collection[str]:
    """Replace `${NAME}` by variables in all values but not in keys. `$${` is an escaped `${`.
    Return the names of the variables."""
    referred = set[str]()

    def expand(value: Value, path: KeyPath) -> Value:
        match value:
            case str() if "${" in value:
                return re.sub(_REFERENCE, lambda match: replacement(match, path), value)
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
        hint = "Use letters, digits, and '_' in names. To write the characters ${, use $${."
        if name:
            message = f"the variable {name} is not set"
            near = nearest(name, variables)
            start = f"Did you mean {near}? Otherwise, set" if near else "Set"
            hint = f"{start} it in the environment, or add a line {name}=… to {secrets}."
        document.problem_at(document.place(path), format_key(path), message, hint)
        # Never used, because the problem stops the start. An empty text would count as left out.
        return "unknown"

    document.values = {key: expand(value, (key,)) for key, value in document.values.items()}
    return referred


def variable_for(path: Sequence[str]) -> str:
    """Return the variable that overrides the key at `path`."""
    return PREFIX + "__".join(path).upper()


def apply_overrides(document: ConfigDocument, variables: Mapping[str, Variable]) -> None:
    """Apply the values of NANOBOT_… variables to the document.

    Below `models`, `channels` and `owner` any key is accepted here and checked later."""
    ours = {name for name in variables if name.startswith(PREFIX)} - {HOME, DEBUG}
    if not ours:
        return
    paths: dict[str, Sequence[str]] = {
        variable_for(path): path
        for name, model in SECTIONS.items()
        for path, _ in keys_of(model, (name,))
    }
    for name in sorted(ours):
        value, place = variables[name]
        if path := paths.get(name) or path_of_entry(name):
            document.override(path, parse_override(value, place, tuple(path), document), place)
        else:
            hint = suggest_variable(name, (*paths, HOME))
            document.problem_at(place, name, "this variable matches no key", hint)


def suggest_variable(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown variable."""
    near = nearest(name.removeprefix(PREFIX), [one.removeprefix(PREFIX) for one in known])
    return f"Did you mean {PREFIX}{near}?" if near else "See `nanobot config schema`."


def parse_override(text: str, place: ConfigPlace, path: KeyPath, document: ConfigDocument) -> Value:
    """Return the value of a variable that overrides the key at `path`.

    A list, a mapping or a quoted text is read as YAML. Anything else is taken literally, so no key
    or password ever needs quoting."""
    text = text.strip()
    if text in ("", "~", "null"):
        return None
    if text[0] not in "[{\"'":
        return text
    from nanobot.config.yamltext import parse_value  # loads PyYAML

    return parse_value(text, place, path, document)


def path_of_entry(name: str) -> Sequence[str]:
    path = name.removeprefix(PREFIX).lower().split("__")
    least, most = {"owner": (2, 2), "models": (2, 4), "channels": (3, 20)}.get(path[0], (0, 0))
    return path if least <= len(path) <= most and all(path) else ()


def check_document(document: ConfigDocument) -> Settings:
    """Return the settings. Raise `ConfigError` for any problem."""
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
        from nanobot.config.channels import (
            check_channels,
            check_owner,
        )  # slow: reads installed packages

        sections |= {"owner": check_owner(document), "channels": check_channels(document)}
    document.raise_if_any()
    # Every part is checked. Checking all again would take a tenth of the start-up time.
    settings = fill_sections(Settings(home=document.home, **sections))
    for fault in settings.faults(document.home):
        document.problem(fault.key, fault.message, fault.hint)
    document.raise_if_any()
    return settings


def fill_sections(settings: Settings) -> Settings:
    """Fill in the values that sections inherit from each other."""
    model, memory, http = settings.model, settings.memory, settings.http
    url, key = model.base_url, model.api_key
    transcription = fill_side_model(model.transcription, url, key)
    speech = fill_side_model(model.speech, url, key)
    embeddings = fill_side_model(memory.embeddings, url, key)
    # Platforms call channels under these names.
    running = [channel.options for channel in settings.channels.values() if channel.enabled]
    urls = [urlsplit(str(getattr(options, "webhook_url", ""))) for options in running]
    hosts = (*http.public_hosts, *(url.hostname for url in urls if url.hostname))
    return replace(
        settings,
        model=replace(model, transcription=transcription, speech=speech),
        memory=replace(memory, embeddings=embeddings),
        http=replace(http, public_hosts=tuple(dict.fromkeys(hosts))),
    )


def warn_of_literal_secrets(document: ConfigDocument, settings: Settings) -> None:
    """Warn of literal secrets in a file that other users may read."""
    for steps, _ in secrets_in(settings):
        path = steps
        if steps[0] == "channels":  # an adapter's own settings are next to the common ones
            path = tuple(step for step in steps if step != "options")
        place = document.place(path)
        if document.get(path) and path not in document.from_variables and not place.variable:
            message = "is in a file that other users can read"
            hint = f"Run `chmod 600 {shlex.quote(place.file)}`."
            document.warn_at(place, format_key(path), message, hint)
