"""The changes that onboarding makes: config.yaml, secrets.env, and the owner's name in USER.md."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec.structs import asdict, replace

from nanobot.channel import SetupResult
from nanobot.config import changes
from nanobot.config.changes import ConfigEdit, ExistingFiles, read_text
from nanobot.config.load import load_settings
from nanobot.config.model import LEAST_PROMPT_TOKENS, SAFETY_TOKENS, ModelSettings
from nanobot.config.values import check_id
from nanobot.config.yamltext import ConfigChange, Setting, value_at
from nanobot.errors import NanobotError
from nanobot.providers.known_servers import provider_at
from nanobot.validation import InvalidValue

_USER = "USER.md"
_LARGEST = 1 << 20
_NAME = re.compile(r"(?m)^- Name: (.*\S)$|^\(name, languages, time zone, where they live\)$")
"""The line with the name in USER.md, or the template's text in its place."""
_SHARE = 4  # an answer may take 1/4 of a small window at most
_WRITTEN = ("name", "base_url", "api", "context_window", "max_completion_tokens")


class ConfigPart(ConfigEdit, frozen=True):
    """The changes of one step. `summary` has lines for the person, each a topic and its value.
    `sign_in` lists channels that still need a sign-in. `name` is the person's name, for USER.md.
    `unchecked` lists channels that could not be reached for a check, or the model. `model_at` is
    the address of the new model, and no other may get its key."""

    summary: tuple[tuple[str, str], ...] = ()
    sign_in: tuple[str, ...] = ()
    name: str = ""
    unchecked: tuple[str, ...] = ()
    model_at: str = ""

    def __add__(self, other: ConfigPart) -> ConfigPart:
        """Join two parts with different keys."""
        return ConfigPart(
            (*self.changes, *other.changes),
            {**self.secrets, **other.secrets},
            (*self.summary, *other.summary),
            (*self.sign_in, *other.sign_in),
            self.name or other.name,
            (*self.unchecked, *other.unchecked),
            self.model_at or other.model_at,
        )

    @property
    def is_empty(self) -> bool:
        return not (self.changes or self.secrets or self.name)

    def as_json(self) -> dict[str, object]:
        """Return the part for machines, without secrets."""
        return {
            "changed": [".".join(one.path) for one in self.changes],
            "secrets": list(self.secrets),
            "told": dict(self.summary),
            "sign_in": list(self.sign_in),
        }


def model_label(model: ModelSettings) -> str:
    if model.provider == "offline":
        return "the built-in model, offline"
    known = provider_at(model.base_url)
    where = known.name if known and not known.is_local else model.base_url
    return f"{model.name or 'the first model'} at {where}"


def fit_window(model: ModelSettings, window: int) -> ModelSettings:
    """Return the model with a context window, and answers that leave room for the prompt in it."""
    model = replace(model, context_window=window)
    if model.max_completion_tokens * _SHARE <= window:
        return model
    room = window - LEAST_PROMPT_TOKENS - min(SAFETY_TOKENS, window // 8)
    return replace(model, max_completion_tokens=max(min(window // _SHARE, room), 1))


def model_changes(
    wanted: ModelSettings,
    present: ModelSettings,
    before: ExistingFiles,
    variable: str = "",
    *,
    unchecked: tuple[str, ...] = (),
) -> ConfigPart:
    """Return the changes that set up a model. `variable` is the environment variable of its key."""
    if wanted is present:
        return ConfigPart()
    summary = (("model", model_label(wanted) + ", not checked" * len(unchecked)),)
    if wanted.provider == "offline":
        return ConfigPart((ConfigChange(("model", "provider"), "offline"),), summary=summary)
    was, now = asdict(present), asdict(wanted)
    changes: dict[str, Setting] = {key: now[key] for key in _WRITTEN if now[key] != was[key]}
    if "base_url" in changes:  # like the key, they are for the old server
        changes |= {key: None for key in ("headers", "extra_body") if was[key]}
    if value_at(before.config, ("model", "provider")) is not None:
        changes["provider"] = "openai"
    key, secrets = _key_changes(wanted, present, before, variable)
    changes.update(key)
    return ConfigPart(
        tuple(ConfigChange(("model", key), value) for key, value in changes.items()),
        secrets,
        summary,
        unchecked=unchecked,
        model_at=wanted.base_url,
    )


def _key_changes(
    wanted: ModelSettings, present: ModelSettings, before: ExistingFiles, variable: str
) -> tuple[dict[str, Setting], dict[str, str]]:
    """Return the reference to the key, and its value for secrets.env."""
    if wanted.api_key == present.api_key:
        return {}, {}
    if not wanted.api_key:
        return {"api_key": ""}, {}
    named, key = provider_at(wanted.base_url), wanted.api_key.get_secret_value()
    usual = variable or (named and named.key_variable) or "MODEL_API_KEY"
    # The files are written one by one, and the old server must not get the new one's key.
    fresh = bool(present.api_key) and wanted.base_url != present.base_url
    name = before.variable(("model", "api_key"), usual, key, fresh=fresh)
    return {"api_key": f"${{{name}}}"}, {name: key}


def channel_changes(name: str, result: SetupResult, before: ExistingFiles) -> ConfigPart:
    values, secrets = dict[str, Setting](enabled=True), dict[str, str]()
    for key, secret in result.secrets.items():
        variable = before.variable(("channels", name, key), f"{name}_{key}".upper(), secret)
        values[key], secrets[variable] = f"${{{variable}}}", secret
    values.update(result.values)
    changes = [ConfigChange(("channels", name, key), value) for key, value in values.items()]
    try:
        owners = tuple(map(check_id, result.owners))
    except InvalidValue as error:
        raise NanobotError(f"your id {error}", hint=error.hint) from None
    summary = [result.who or "on"]
    if owners:
        changes.insert(0, ConfigChange(("owner", name), owners))
        summary.append(f"your id is {', '.join(owners)}")
    if result.unchecked:
        summary.append("not checked")
    return ConfigPart(
        tuple(changes),
        secrets,
        ((name, ", ".join(summary)),),
        (name,) if result.sign_in else (),
        unchecked=(name,) if result.unchecked else (),
    )


def write(home: Path, before: ExistingFiles, part: ConfigPart) -> None:
    """Write all changes. Raises the errors of `nanobot.config.changes.write`."""
    from nanobot.app.base import make_home

    make_home(home)
    changes.write(home, before, part)
    if not part.name:
        return
    from nanobot.memory.documents import install_template
    from nanobot.security.paths import Root

    workspace = _find_workspace(home)
    install_template(workspace)
    place = Root(workspace).place(_USER)
    was = place.read_bytes(_LARGEST) or b""
    text = with_name(was.decode("utf-8", "surrogateescape"), part.name)
    place.write_bytes(text.encode("utf-8", "surrogateescape"), expected=was)


def _find_workspace(home: Path) -> Path:
    """Return the folder with people's text. Raises `ConfigError`."""
    return load_settings(home).data_folder / "workspace"


def name_in(home: Path) -> str:
    """Return the owner's name in USER.md, from the line that onboarding writes."""
    found = _NAME.search(read_text(_find_workspace(home) / _USER))
    return (found[1] or "") if found else ""


def with_name(text: str, name: str) -> str:
    """Put the name into the text of USER.md: in place of an older one or the template's line, else
    at the end."""
    entry = f"- Name: {name}"
    if _NAME.search(text):
        return _NAME.sub(lambda _: entry, text, count=1)
    return f"{text.rstrip()}\n\n{entry}\n".lstrip()
