"""Loading: the files are read, variables put in, overrides laid over, and everything checked.

Precedence, the strongest first: `NANOBOT_SECTION__KEY`, `config.yaml`, the default. A key whose
value is empty counts as left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from nanobot.config.base import Fault
from nanobot.config.check import Checker
from nanobot.config.files import exists, read_own_file
from nanobot.config.findings import Findings, Place
from nanobot.config.home import home_folder
from nanobot.config.mcp import McpSettings
from nanobot.config.memory import MemorySettings
from nanobot.config.model import ModelSettings
from nanobot.config.settings import (
    BY_CHANNEL,
    SECTIONS,
    ChannelSettings,
    HttpSettings,
    Settings,
    keys_of,
)
from nanobot.config.tools import ToolSettings
from nanobot.config.tree import Path as KeyPath
from nanobot.config.tree import Section
from nanobot.config.variables import Expansion, gather, override

M = TypeVar("M", bound=BaseModel)

CONFIG_FILE = "config.yaml"
SECRETS_FILE = "secrets.env"

_WITH_RULES = ("model", "memory", "tools", "mcp", "http")
_WITHOUT_RULES = tuple(name for name in SECTIONS if name not in _WITH_RULES)


def load_settings(home: Path | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings of `home`, which is that of `home_folder(environ)` where none is given.

    No file has to exist. Raises `ConfigError`, one for all problems together.
    """
    home = (home or home_folder(environ)).absolute()
    findings = Findings()
    variables = gather(environ, home / SECRETS_FILE, findings)
    written, exposed = _read(home, findings)
    findings.raise_if_broken()
    expanded = Expansion(variables, home / SECRETS_FILE, findings).section(written)
    known = [path for name, model in SECTIONS.items() for path, _ in keys_of(model, (name,))]
    return _checked(home, override(expanded, variables, known, findings), exposed, findings)


def _read(home: Path, findings: Findings) -> tuple[Section, bool]:
    """config.yaml, and whether others may read it."""
    path = home / CONFIG_FILE
    own = read_own_file(path, findings)
    if own is None:
        other = path.with_suffix(".yml")
        if exists(other) and not exists(path):
            hint = f"Rename it to {CONFIG_FILE}."
            findings.warn(Place(str(other)), "", "is not read because of its name", hint)
        return Section(Place(str(path)), {}), False
    from nanobot.config.yamltext import parse_config  # PyYAML, not needed without a file

    return parse_config(own.text, str(path), findings), own.exposed


def _checked(home: Path, root: Section, exposed: bool, findings: Findings) -> Settings:
    checker = Checker(root, findings)
    for key in root.entries:
        if key not in SECTIONS and key not in BY_CHANNEL:
            _unknown_section(checker, key)
    model = _section(checker, "model", ModelSettings)
    memory = _section(checker, "memory", MemorySettings)
    tools = _section(checker, "tools", ToolSettings)
    mcp = _section(checker, "mcp", McpSettings)
    http = _section(checker, "http", HttpSettings)
    simple: dict[str, Any] = {
        name: _section(checker, name, SECTIONS[name]) for name in _WITHOUT_RULES
    }
    owner, channels = _owner(checker), _channels(checker)
    if model is not None:
        _report(checker, "model", model.faults())
    if model is not None and memory is not None:
        embeddings = memory.embeddings.completed(model.base_url, model.api_key)
        memory = memory.model_copy(update={"embeddings": embeddings})
        _report(checker, "memory", memory.faults())
    if tools is not None:
        _report(checker, "tools", tools.faults(home))
    if mcp is not None:
        _report(checker, "mcp", mcp.faults(home))
    findings.raise_if_any()
    assert model is not None  # what is None had its finding
    assert memory is not None
    assert tools is not None
    assert mcp is not None
    assert http is not None
    _warn_of_tools(checker, tools, mcp)
    http = http.beside(_webhook_hosts(channels))
    if exposed:
        own = {"model": model, "memory": memory, "tools": tools, "mcp": mcp}
        _warn_of_secrets(checker, own, channels)
    # Every part is checked; checking the whole again would cost a tenth of the start-up time.
    return Settings.model_construct(
        home=home,
        model=model,
        memory=memory,
        tools=tools,
        mcp=mcp,
        http=http,
        owner=owner,
        channels=channels,
        warnings=findings.warnings,
        **simple,
    )


def _report(checker: Checker, section: str, faults: Iterable[Fault]) -> None:
    for fault in faults:
        checker.problem((section, *fault.key), fault.message, fault.hint)


def _warn_of_tools(checker: Checker, tools: ToolSettings, mcp: McpSettings) -> None:
    """Say once more, at each start, what opens the sandbox."""
    if tools.exec.enabled and tools.exec.sandbox == "none":
        hint = "`nanobot doctor` says which sandbox this machine can have."
        checker.warn(("tools", "exec", "sandbox"), "lets commands do all that you may do", hint)
    for name, server in mcp.servers.items():
        if server.enabled and server.command and not server.sandbox:
            hint = "List what it needs in `paths`, `writable` and `network` instead."
            where = ("mcp", "servers", name, "sandbox")
            checker.warn(where, "lets this server do all that you may do", hint)


def _warn_of_secrets(
    checker: Checker, sections: Mapping[str, BaseModel], channels: Mapping[str, ChannelSettings]
) -> None:
    for name, section in sections.items():
        checker.warn_of_literal_secrets((name,), section)
    for name, channel in channels.items():
        if channel.options:
            checker.warn_of_literal_secrets(("channels", name), channel.options)


def _owner(checker: Checker) -> Mapping[str, tuple[str, ...]]:
    """The owner's ids by channel, as far as they are right."""
    names = checker.section(("owner",)).entries
    if not names:
        return {}
    from nanobot.config.channels import check_owner

    return check_owner(checker)


def _channels(checker: Checker) -> dict[str, ChannelSettings]:
    if not checker.section(("channels",)).entries:
        return {}
    from nanobot.config.channels import check_channels  # brings importlib.metadata

    return check_channels(checker)


def _webhook_hosts(channels: Mapping[str, ChannelSettings]) -> tuple[str, ...]:
    if not channels:
        return ()
    from nanobot.config.channels import webhook_hosts

    return webhook_hosts(channels)


def _section(checker: Checker, name: str, model: type[M]) -> M | None:
    section = checker.section((name,))
    if not section.entries:
        return model.model_construct()  # spares building its validator
    return checker.validate(model, section, (name,))


def _unknown_section(checker: Checker, key: str) -> None:
    path: KeyPath = (key,)
    first, _, rest = key.partition(".")
    within = [name for name, model in SECTIONS.items() if key in model.model_fields]
    if first in SECTIONS and rest:
        hint = f"Write `{first}:` and beneath it, indented, `{rest}: …`."
        checker.problem(path, "keys are not written with a dot", hint)
    elif within:
        hint = f"Indent it beneath `{within[0]}:`."
        checker.problem(path, "does not stand in its section", hint)
    else:
        checker.unknown(path, [*SECTIONS, *BY_CHANNEL])
