"""Loading: the files are read, variables put in, overrides laid over, and everything checked.

Precedence, the strongest first: `NANOBOT_SECTION__KEY`, `config.yaml`, the default. A key whose
value is empty counts as left out. What pydantic finds becomes sentences for people, which say what
a value must be and never what it is.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from nanobot.config import home_folder
from nanobot.config.document import (
    Document,
    KeyPath,
    Place,
    Value,
    dotted,
    nearest,
    read_own_file,
    suggestion,
)
from nanobot.config.environment import expand, gather, override
from nanobot.config.model import completed
from nanobot.config.settings import BY_CHANNEL, SECTIONS, Settings, keys_of
from nanobot.config.values import Unfit, no_key, secrets_in

M = TypeVar("M", bound=BaseModel)

CONFIG_FILE = "config.yaml"
SECRETS_FILE = "secrets.env"

_LIST = ("must be a list", "Write it as [first, second], or one a line after '- '.")
_SENTENCES = {
    "bool_parsing": ("must be true or false", ""),
    "bool_type": ("must be true or false", ""),
    "dict_type": ("must be a section with keys", ""),
    "list_type": _LIST,
    "missing": ("is required", ""),
    "model_type": ("must be a section with keys", ""),
    "model_attributes_type": ("must be a section with keys", ""),
    "string_too_short": ("must not be empty", ""),
    "tuple_type": _LIST,
}
"""By pydantic's kind of error, where its own words are not for people: message and hint."""
_WORDS = (
    ("Value error, ", ""),
    ("Assertion failed, ", ""),
    ("Input should be", "must be"),
    ("greater than or equal to", "at least"),
    ("less than or equal to", "at most"),
)


def load_settings(
    home: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    source: Path | None = None,
) -> Settings:
    """The settings of `home`, which is that of `home_folder(environ)` where none is given.

    The files are read from there, or from `source`; none has to exist. Raises `ConfigError`, one
    for all problems together.
    """
    home = (home or home_folder(environ)).absolute()
    source = source or home
    document = Document(str(source / CONFIG_FILE), home)
    variables = gather(environ, source / SECRETS_FILE, document)
    exposed = _read(source / CONFIG_FILE, document)
    document.raise_if_broken()
    expand(document, variables, source / SECRETS_FILE)
    known = [path for name, model in SECTIONS.items() for path, _ in keys_of(model, (name,))]
    override(document, variables, known)
    settings = _checked(document)
    if exposed:
        _warn_of_literal_secrets(document, settings)
    return settings.model_copy(update={"warnings": document.warnings})


def _read(path: Path, document: Document) -> bool:
    """Put config.yaml into the document; whether others may read it."""
    if (own := read_own_file(path, document)) is None:
        other = path.with_suffix(".yml")
        with suppress(OSError):
            if other.exists() and not path.exists():
                hint = f"Rename it to {CONFIG_FILE}."
                document.warn_at(Place(str(other)), "", "is not read because of its name", hint)
        return False
    from nanobot.config.yamltext import parse_config  # PyYAML, not needed without a file

    text, exposed = own
    parse_config(text, document)
    return exposed


def validate(
    document: Document,
    model: type[M],
    section: Mapping[str, Value],
    path: KeyPath,
    also_known: Sequence[str] = (),
) -> M | None:
    """`section`, which stands at `path`, as a `model`; None where problems were found.

    `also_known` are keys of the section that another model checks.
    """
    if not section and not any(field.is_required() for field in model.model_fields.values()):
        return model.model_construct()  # spares building its validator
    try:
        return model.model_validate(_given(dict(section)), extra="forbid", context=document.home)
    except ValidationError as error:
        details = error.errors(include_url=False)
    for detail in details:
        where = (*path, *(step for step in detail["loc"] if step != "[key]"))
        if detail["type"] == "extra_forbidden":
            inside = detail["loc"][:-1]
            known = [*_keys(model, inside), *(() if inside else also_known)]
            hint = suggestion(str(where[-1]), known)
            document.problem(where, "there is no such key", hint)
        else:
            document.problem(where, *_sentence(document, detail, where))
    return None


def _sentence(document: Document, detail: ErrorDetails, path: KeyPath) -> tuple[str, str]:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "fault":
        return context["message"], context["hint"]
    if isinstance(unfit := context.get("error"), Unfit):
        return str(unfit), unfit.hint
    if kind in _SENTENCES:
        return _SENTENCES[kind]
    value, near, message = document.get(path), "", detail["msg"]
    if isinstance(value, str) and value:
        if kind == "literal_error":
            near = nearest(value, re.findall("'([^']*)'", context["expected"]))
        elif not kind.startswith(("greater", "less")):  # an adapter's own check may repeat it
            message = message.replace(value, "…")
    for theirs, ours in _WORDS:
        message = message.replace(theirs, ours)
    message = message.partition(", unable to")[0]
    return message[:1].lower() + message[1:], f"Did you mean '{near}'?" if near else ""


def _given(value: Value) -> Any:
    """What is written, less the keys without a value."""
    if isinstance(value, list):
        return [_given(item) for item in value]
    if isinstance(value, dict):
        return {key: _given(item) for key, item in value.items() if item is not None}
    return value


def _keys(model: type[BaseModel], loc: Sequence[str | int]) -> Iterable[str]:
    """The keys of the model that `loc`, as pydantic gives it, leads to."""
    for step in loc:
        if isinstance(step, str) and step in model.model_fields:
            model = _model_in(model.model_fields[step].annotation) or model
    return model.model_fields


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_model_in(argument) for argument in get_args(annotation))
    return next((model for model in found if model), None)


def _checked(document: Document) -> Settings:
    """Raises `ConfigError` where anything is wrong."""
    for key in document.values:
        if key not in SECTIONS and key not in BY_CHANNEL:
            document.problem((key,), "there is no such key", _hint_for(key))
    sections: dict[str, Any] = {
        name: validate(document, model, document.section((name,)), (name,))
        for name, model in SECTIONS.items()
    }
    if any(document.section((name,)) for name in BY_CHANNEL):
        from nanobot.config.channels import check_channels, check_owner  # read installed packages

        sections |= {"owner": check_owner(document), "channels": check_channels(document)}
    document.raise_if_any()
    # Every part is checked; checking the whole again would cost a tenth of the start-up time.
    settings = _completed(document, Settings.model_construct(home=document.home, **sections))
    document.raise_if_any()
    _warn_of_tools(document, settings)
    return settings


def _hint_for(key: str) -> str:
    first, _, rest = key.partition(".")
    if first in SECTIONS and rest:
        return f"Write `{first}:` and beneath it, indented, `{rest}: …`."
    for name, model in SECTIONS.items():
        if key in model.model_fields:
            return f"Indent it beneath `{name}:`."
    return suggestion(key, [*SECTIONS, *BY_CHANNEL])


def _completed(document: Document, settings: Settings) -> Settings:
    """The settings with what sections take from each other; notes what is wrong between them."""
    model, memory, http, backup = settings.model, settings.memory, settings.http, settings.backup
    embeddings = completed(memory.embeddings, model.base_url, model.api_key)
    if embeddings.lacks_key:
        fault = no_key("memory", "embeddings", "api_key")
        document.problem(fault.key, fault.message, fault.hint)
    shown = [*settings.tools.exec.paths]
    for server in settings.mcp.servers.values():
        shown += (*server.paths, *server.writable)
    if backup.folder and any(
        backup.place(settings.home).is_relative_to(Path(path).resolve()) for path in shown
    ):
        fault = backup.exposed()
        document.problem(("backup", *fault.key), fault.message, fault.hint)
    hosts = (*http.public_hosts, *_webhook_hosts(settings))
    return settings.model_copy(
        update={
            "memory": memory.model_copy(update={"embeddings": embeddings}),
            "http": http.model_copy(update={"public_hosts": tuple(dict.fromkeys(hosts))}),
        }
    )


def _webhook_hosts(settings: Settings) -> tuple[str, ...]:
    if not settings.channels:
        return ()
    from nanobot.config.channels import webhook_hosts

    return webhook_hosts(settings.channels)


def _warn_of_tools(document: Document, settings: Settings) -> None:
    """Warn, at each start, of what opens the sandbox."""
    if settings.tools.exec.enabled and settings.tools.exec.sandbox == "none":
        hint = "`nanobot doctor` says which sandbox this machine can have."
        document.warn(("tools", "exec", "sandbox"), "lets commands do all that you may do", hint)
    for name, server in settings.mcp.servers.items():
        if server.enabled and server.command and not server.sandbox:
            hint = "List what it needs in `paths`, `writable` and `network` instead."
            where = ("mcp", "servers", name, "sandbox")
            document.warn(where, "lets this server do all that you may do", hint)


def _warn_of_literal_secrets(document: Document, settings: Settings) -> None:
    """Warn of secrets that are written out in a file that others may read."""
    for steps, _ in secrets_in(settings):
        path = steps
        if steps[0] == "channels":  # an adapter's own settings stand beside the common ones
            path = tuple(step for step in steps if step != "options")
        place = document.place(path)
        if document.get(path) and path not in document.from_variables and not place.variable:
            message = "is written out in a file that other users can read"
            hint = f"Make it yours: `chmod 600 {shlex.quote(place.file)}`."
            document.warn_at(place, dotted(path), message, hint)
