"""Changes of config.yaml and secrets.env: their effect, their validation, and writing them.

Everything is checked before a file is touched. Then each file is replaced as a whole, the secrets
first, because the configuration refers to them.

Some settings control permissions, access and where data is sent. These can only be changed in the
terminal. A browser page, or an attacker in its session, can only change `REMOTE_KEYS`. Unknown keys
count as sensitive.

Invariants: a diff shows no secret, neither the old one nor the new one. A page writes only the plan
that it was shown (checked by `hash`), which is valid and widens nothing."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import unified_diff
from inspect import cleandoc
from itertools import chain, count, islice
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from nanobot.channel import Operation
from nanobot.commands import in_threads, text_argument
from nanobot.config.document import ConfigErrors
from nanobot.config.extras import missing_extras
from nanobot.config.load import (
    CONFIG_FILE,
    SECRETS_FILE,
    load_settings,
    load_with_places,
    parse_env_file,
    update_env_file,
    variable_for,
)
from nanobot.config.schema import KeyInfo, is_hidden, list_keys
from nanobot.config.settings import SECTIONS, Settings
from nanobot.config.yamltext import ConfigChange, Setting, edit_text, mask_values, value_at
from nanobot.errors import ConfigError, NanobotError, StorageError
from nanobot.io import replace_file, storage_errors
from nanobot.security.redaction import Redactor
from nanobot.validation import KeyPath

REMOTE_KEYS: Sequence[tuple[str, ...]] = tuple(
    tuple(key.split("."))
    for key in (
        # Answers and their cost, on the server and with the key that the owner chose.
        "model.name", "model.context_window", "model.max_completion_tokens", "model.prices",
        "model.timeout_seconds", "model.retry_seconds", "model.reasoning_effort",
        "model.temperature", "model.transcription.language", "use",
        "agent",
        # Memory, but not its sharing.
        "memory.window", "memory.idle_minutes", "memory.notices", "memory.recent_days",
        "memory.embeddings.local", "dream", "cron", "heartbeat",
        "limits.tokens_per_day", "limits.uses", "limits.tokens_per_turn",
        "log",
        # The time of backups, but not their place and readers.
        "backup.schedule", "backup.keep", "backup.media",
        "retention.media_days", "retention.media_megabytes", "retention.disk_reserve_megabytes",
        "channels.telegram.previews", "channels.telegram.reactions",
        "channels.whatsapp.read_receipts",
    )
)  # fmt: skip
"""Keys that can be changed outside the terminal, each with everything below it."""

_HEADER = """\
# Written by `nanobot`. You can edit it. `nanobot config example` prints all settings with their
# defaults, and docs/configuration.md explains them.
#
# ${NAME} inserts a variable from the environment or from secrets.env next to this file.
"""
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def widens_security(path: Sequence[str]) -> bool:
    """Return True if changing the key at `path` may widen the access of the agent or others.
    Unknown keys count too."""
    return not any(tuple(path[: len(known)]) == known for known in REMOTE_KEYS)


class ConfigEdit(Struct, frozen=True):
    """Values to write to config.yaml, and secrets by their names in secrets.env."""

    changes: tuple[ConfigChange, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)


E = TypeVar("E", bound=ConfigEdit)


class ExistingFiles(Struct, frozen=True):
    """The two files and the environment, which takes precedence over secrets.env."""

    config: str
    secrets: str
    environ: Mapping[str, str]

    @classmethod
    def read(cls, home: Path, environ: Mapping[str, str]) -> ExistingFiles:
        """Read the files of `home`, empty if missing. Raise `StorageError`."""
        return cls(read_text(home / CONFIG_FILE), read_text(home / SECRETS_FILE), environ)

    @property
    def digest(self) -> str:
        """SHA-256 of these files, in hexadecimal."""
        content = f"{len(self.config)}\n{self.config}{self.secrets}"
        return hashlib.sha256(content.encode()).hexdigest()

    def variable(
        self, path: tuple[str, ...], preferred: str, value: str, *, fresh: bool = False
    ) -> str:
        """Return the variable for a secret at `path`: the present one unless `fresh`, else a name
        without another value. Raise `NanobotError` if the value cannot be a secret."""
        if not value.isprintable():
            said = f"the value for {preferred} contains a line break or an invisible character"
            raise NanobotError(said, hint="Copy only the value, and paste it again.")
        written = _REFERENCE.fullmatch(str(value_at(self.config, path) or ""))
        if written and not fresh and self.environ.get(written[1]) in (None, value):
            return written[1]
        return self.free_name(preferred, value)

    def free_name(self, preferred: str, value: str) -> str:
        known = {**parse_env_file(self.secrets), **self.environ}
        names = chain([preferred], (f"{preferred}_{number}" for number in count(2)))
        return next(name for name in names if known.get(name) in (None, value))

    def new_in(self, edit: E) -> E:
        """Return `edit` without values that the files already contain."""
        known = parse_env_file(self.secrets)
        changes = (one for one in edit.changes if value_at(self.config, one.path) != one.as_read())
        secrets = {name: value for name, value in edit.secrets.items() if known.get(name) != value}
        return replace(edit, changes=tuple(changes), secrets=secrets)

    def render_texts(self, edit: ConfigEdit) -> dict[str, str]:
        """Return the new text of each file, the secrets first."""
        config = edit_text(self.config or _HEADER, edit.changes) if edit.changes else self.config
        texts = {SECRETS_FILE: update_env_file(self.secrets, edit.secrets), CONFIG_FILE: config}
        return {name: text for name, text in texts.items() if text}

    def diff_lines(self, edit: ConfigEdit) -> list[str]:
        """Return the removed (`-`) and added (`+`) lines of config.yaml, without secrets."""
        config = self.config or _HEADER
        old, new = hide_secrets(config, edit_text(config, edit.changes))
        lines = unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)
        return [line for line in islice(lines, 2, None) if line[0] in "+-" and line[1:].strip()]


def hide_secrets(old: str, new: str) -> tuple[str, str]:
    """Return both texts with placeholders for secrets. A changed secret still shows as a change."""
    seen: dict[KeyPath, str] = {}

    def mask(path: KeyPath, value: str) -> str | None:
        if not is_hidden(path, value):
            return None
        return "…" if seen.setdefault(path, value) == value else "… (another)"

    redact = Redactor().redact
    return redact(mask_values(old, mask)), redact(mask_values(new, mask))


class ConfigPlan(Struct, frozen=True):
    """The effect of an edit. `lines` are the diff, `errors` prevent writing it, `widening` are its
    keys that can only be changed in the terminal."""

    edit: ConfigEdit
    lines: Sequence[str] = ()
    errors: Sequence[ConfigError] = ()
    warnings: Sequence[str] = ()
    widening: Sequence[str] = ()


def plan(home: Path, before: ExistingFiles, edit: ConfigEdit) -> ConfigPlan:
    """Return the effect of `edit` on `before`, the files of `home`. Raise `NanobotError` if it
    cannot be written at all."""
    edit = before.new_in(edit)
    lines = before.diff_lines(edit)
    widening = [".".join(one.path) for one in edit.changes if widens_security(one.path)]
    try:
        new = load_changed(home, before, edit)
    except ConfigErrors as errors:
        return ConfigPlan(edit, lines, errors.problems, widening=widening)
    was = list[str]()
    with suppress(ConfigError):  # the present files may be invalid
        was = list_warnings(load_changed(home, before, ConfigEdit()))
    new_warnings = [one for one in list_warnings(new) if one not in was]
    return ConfigPlan(edit, lines, (), [*find_overridden(edit, before), *new_warnings], widening)


def find_overridden(edit: ConfigEdit, before: ExistingFiles) -> Iterator[str]:
    variables = {**parse_env_file(before.secrets), **before.environ}
    for change in edit.changes:
        ways = (variable_for(change.path[:end]) for end in range(len(change.path), 1, -1))
        if name := next((one for one in ways if one in variables), ""):
            yield f"{'.'.join(change.path)} has no effect while the variable {name} is set"


def list_warnings(settings: Settings) -> list[str]:
    return [*settings.warnings, *(f"{text}. {hint}" for text, hint in missing_extras(settings))]


def load_changed(home: Path, before: ExistingFiles, edit: ConfigEdit) -> Settings:
    """Return the settings after the edit. Raise `ConfigError` if they are invalid."""
    return load_settings(home, before.environ, texts=before.render_texts(edit))


def write(home: Path, before: ExistingFiles, edit: ConfigEdit) -> None:
    """Write everything into `home`, which must exist. Raise `StorageError`, or `NanobotError` if a
    file has changed since `before` was read. Then both files are unchanged."""
    was = {SECRETS_FILE: before.secrets, CONFIG_FILE: before.config}
    texts = before.render_texts(edit)
    for name in texts:
        if read_text(home / name) != was[name]:
            changed = f"{home / name} has changed in the meantime, so nothing was written"
            raise NanobotError(changed, hint="Run the command again.")
    for name, text in texts.items():
        if text != was[name]:
            path = (home / name).resolve()  # may be a link, such as into a dotfiles folder
            with storage_errors(path):
                replace_file(path, text.encode())


def read_text(path: Path) -> str:
    """Return the text of the person's file, empty if it is missing. Raise `StorageError`."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise StorageError.of(path, error) from error
    except UnicodeDecodeError:
        raise StorageError(path, "is not UTF-8 text", hint="Save it as UTF-8.") from None


Request = Mapping[str, object]
Answer = dict[str, object]

TERMINAL_ONLY = "Run `nanobot config set {} …`."


class ConfigOperations:
    """The operations named `config.…` on the files of the home that runs with `running`."""

    def __init__(self, running: Settings, environ: Mapping[str, str] = os.environ) -> None:
        self._home, self._running, self._environ = running.home, running, environ

    def table(self) -> Mapping[str, Operation]:
        """Return the operations by name, for the socket. Each works in a thread."""
        return in_threads(
            {"config.show": self._show, "config.plan": self._plan, "config.apply": self._apply}
        )

    def _show(self, _: Request) -> Answer:
        """Take no arguments. Return all `keys` and their `sections`. `restart_needed` is true if
        the files differ from the running settings."""
        before = ExistingFiles.read(self._home, self._environ)
        settings, document = load_with_places(self._home, self._environ)
        return {
            "keys": [key_data(one) for one in list_keys(settings, document)],
            "sections": {name: cleandoc(model.__doc__ or "") for name, model in SECTIONS.items()},
            "warnings": list(settings.warnings),
            "restart_needed": replace(settings, warnings=()) != replace(self._running, warnings=()),
            "hash": before.digest,
        }

    def _plan(self, arguments: Request) -> Answer:
        """Take `changes`, values by key such as `{"agent.on_busy": "queue"}`; null removes a key.
        Return the `diff` as lines, `errors` that prevent writing, `warnings`, and under
        `widens_security` the keys that `apply` rejects."""
        planned, before = self._make_plan(arguments)
        return {
            "diff": list(planned.lines),
            "errors": [
                {name: getattr(one, name) for name in ("key", "line", "message", "hint")}
                for one in planned.errors
            ],
            "warnings": list(planned.warnings),
            "widens_security": list(planned.widening),
            "hash": before.digest,
        }

    def _apply(self, arguments: Request) -> Answer:
        """Take `changes` as for `plan`, and `expected`, the `hash` from there. They take effect at
        the next start of nanobot."""
        planned, before = self._make_plan(arguments, text_argument(arguments, "expected"))
        if planned.widening:
            key = planned.widening[0]
            raise NanobotError(
                f"{key} affects security and can only be changed in the terminal",
                hint=TERMINAL_ONLY.format(key),
            )
        if planned.errors:
            said = "\n".join(error.for_people() for error in planned.errors)
            raise NanobotError(
                f"nothing was changed, because the configuration would not be valid:\n{said}"
            )
        if planned.edit.changes:
            write(self._home, before, planned.edit)
        changed = [".".join(one.path) for one in planned.edit.changes]
        return {"changed": changed, "diff": list(planned.lines), "restart_needed": bool(changed)}

    def _make_plan(
        self, arguments: Request, expected: str = ""
    ) -> tuple[ConfigPlan, ExistingFiles]:
        changes = arguments.get("changes")
        if not isinstance(changes, Mapping) or not changes:
            raise NanobotError("the operation needs values by key in 'changes'")
        edit = ConfigEdit(tuple(change_of(str(key), value) for key, value in changes.items()))
        before = ExistingFiles.read(self._home, self._environ)
        if expected not in ("", before.digest):
            raise NanobotError(
                "the configuration has changed in the meantime", hint="Review the changes again."
            )
        return plan(self._home, before, edit), before


def key_data(info: KeyInfo) -> Answer:
    return {**to_builtins(info), "terminal_only": widens_security(info.path)}


def change_of(key: str, value: object) -> ConfigChange:
    """Return the change of a dotted key to a JSON value. Raise `NanobotError`."""
    path = tuple(key.split("."))
    if not all(path) or len(path) < 2:
        raise NanobotError(f"{key!r} is not the name of a key", hint="Write it like agent.on_busy.")
    return ConfigChange(path, read_setting(value))


def read_setting(value: object) -> Setting:
    match value:
        case None | str() | bool() | int() | float():
            return value
        case list():
            return tuple(map(read_setting, value))
        case Mapping():
            return {str(key): read_setting(item) for key, item in value.items()}
    raise NanobotError("a value must be text, a number, true, false, a list, or a mapping")
