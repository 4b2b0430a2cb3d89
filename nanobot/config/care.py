"""Changes of the configuration that deserve a second look: they give the agent, other people or
another server more than they had.

Values are compared, not keys: closing something is harmless under any key. The terminal shows
these before it writes. A page in a browser is stricter and changes only what
`nanobot.config.changing.ELSEWHERE` names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from nanobot.config.changing import ConfigEdit, ExistingFiles, widens_security
from nanobot.config.keys import list_keys
from nanobot.config.load import load_with_places
from nanobot.errors import ConfigError

_NOTHING = ("", False, None)

SENSITIVE: Mapping[str, tuple[object, ...]] = {
    # The agent's abilities.
    "tools.exec.sandbox": ("auto", "bubblewrap", "landlock"),
    "tools.exec.environment": (), "tools.exec.paths": (),
    "tools.exec.enabled": _NOTHING, "tools.exec.network": _NOTHING,
    "tools.exec.allow_git": _NOTHING,
    "tools.web.enabled": _NOTHING, "tools.web.allow_hosts": (),
    "mcp.servers.*.sandbox": (True,), "mcp.servers.*.people": ("owner",),
    "mcp.servers.*.command": _NOTHING, "mcp.servers.*.args": (), "mcp.servers.*.url": _NOTHING,
    "mcp.servers.*.paths": (), "mcp.servers.*.writable": (), "mcp.servers.*.network": _NOTHING,
    "mcp.servers.*.trust_read_only": _NOTHING, "mcp.servers.*.enabled": _NOTHING,
    "model.*.command": (), "model.*.read": (), "model.*.sandbox": (True,),
    # Its senders.
    "owner.*": (), "memory.identities": (), "memory.groups_see_owner": _NOTHING,
    "channels.*.enabled": _NOTHING, "channels.*.allow_from": (), "channels.*.allow_groups": (),
    "channels.whatsapp.node": ("node",), "channels.whatsapp.self_chat": _NOTHING,
    "channels.*.webhook_url": _NOTHING,
    "channels.web.address": _NOTHING, "http.public_hosts": (),
    "http.host": ("127.0.0.1", "::1", "localhost"),
    "health.host": ("127.0.0.1", "::1", "localhost"),
    # The destinations of data.
    "model.base_url": _NOTHING, "model.*.base_url": _NOTHING, "models.*.base_url": _NOTHING,
    "model.fallbacks": (), "memory.embeddings.base_url": _NOTHING,
    "tools.web.proxy": _NOTHING, "tools.web.search.base_url": _NOTHING,
    "tools.web.search.provider": ("duckduckgo",),
    "channels.*.base_url": _NOTHING, "channels.*.proxy": _NOTHING,
    "backup.folder": _NOTHING, "team.database": _NOTHING, "team.shared": _NOTHING,
}  # fmt: skip
"""Keys by pattern, each with the values that open nothing. In a list or a mapping, only
additions open something."""

GRADES: Mapping[str, tuple[object, ...]] = {
    "tools.approval.*": ("never", "ask", "auto", "allow"),
    "channels.*.groups": ("off", "mention", "open"),
    "channels.whatsapp.pairing": ("never", "auto", "always"),
}
"""Keys by pattern, each with its values from the most closed to the most open."""
EXCLUSIONS = ("skills.disabled", "backup.recipient")
"""Keys whose entries close something."""
ALLOWANCES = ("tools.web.domains", "mcp.servers.*.tools")
"""Keys that close everything but their entries; empty, they close nothing."""


def opening_keys(home: Path, before: ExistingFiles, edit: ConfigEdit) -> list[str]:
    """Return the keys by which `edit` opens something. If the configuration could not be loaded,
    all of its keys that might."""
    try:
        old, new = _values(home, before, ConfigEdit()), _values(home, before, edit)
    except ConfigError:
        return [".".join(one.path) for one in edit.changes if widens_security(one.path)]
    return [key for key, (value, default) in new.items() if _opens(key, old, value, default)]


def _values(
    home: Path, before: ExistingFiles, edit: ConfigEdit
) -> dict[str, tuple[object, object]]:
    texts = before.changed_texts(edit)
    loaded = load_with_places(home, before.environ, texts=texts)
    return {one.name: (one.value, one.default) for one in list_keys(*loaded)}


def _opens(
    key: str, old: Mapping[str, tuple[object, object]], value: object, default: object
) -> bool:
    was = old[key][0] if key in old else default
    had, has = set(_items(was)), set(_items(value))
    if was == value:
        return False
    if _is_one_of(key, EXCLUSIONS):
        return bool(had - has)
    if _is_one_of(key, ALLOWANCES):
        return bool(had) and not (has and has <= had)
    if grades := _matching(key, GRADES):
        return grades.index(value) > grades.index(was)
    harmless = _matching(key, SENSITIVE)
    if harmless is None or value in harmless:
        return False
    return bool(has - had) if isinstance(value, list | dict) else True


def _matching(key: str, patterns: Mapping[str, tuple[object, ...]]) -> tuple[object, ...] | None:
    return next((values for one, values in patterns.items() if fnmatchcase(key, one)), None)


def _is_one_of(key: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(key, one) for one in patterns)


def _items(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (f"{key}={item!r}" for key, item in value.items())
    elif isinstance(value, list):
        yield from map(repr, value)
    elif value:
        yield repr(value)
