"""Loading: the files are read, variables put in, overrides laid over, and everything checked.

Precedence, the strongest first: `NANOBOT_SECTION__KEY`, `config.yaml`, the default. A key whose
value is empty counts as left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from nanobot.config.check import Checker
from nanobot.config.findings import Findings, Place, exists, read_own_file
from nanobot.config.home import home_folder
from nanobot.config.memory import MemorySettings
from nanobot.config.model import ModelSettings
from nanobot.config.service import BackupSettings, HealthSettings, HttpSettings
from nanobot.config.settings import BY_CHANNEL, SECTIONS, ChannelSettings, Settings, keys_of
from nanobot.config.tools import McpSettings, ToolSettings
from nanobot.config.tree import Path as KeyPath
from nanobot.config.tree import Section
from nanobot.config.values import Fault
from nanobot.config.variables import Expansion, gather, override

M = TypeVar("M", bound=BaseModel)

CONFIG_FILE = "config.yaml"
SECRETS_FILE = "secrets.env"

_WITH_RULES = ("model", "memory", "tools", "mcp", "http", "health", "backup")
_WITHOUT_RULES = tuple(name for name in SECTIONS if name not in _WITH_RULES)


def load_settings(
    home: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    source: Path | None = None,
) -> Settings:
    """The settings of `home`, which is that of `home_folder(environ)` where none is given.

    The files are in there, or in `source`; none has to exist. Raises `ConfigError`, one for all
    problems together.
    """
    home = (home or home_folder(environ)).absolute()
    findings = Findings()
    source = source or home
    variables = gather(environ, source / SECRETS_FILE, findings)
    written, exposed = _read(source, findings)
    findings.raise_if_broken()
    expanded = Expansion(variables, source / SECRETS_FILE, findings).section(written)
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


@dataclass(frozen=True, slots=True)
class _Ruled:
    """The sections that are more than their values: with rules of their own, or about others."""

    model: ModelSettings
    memory: MemorySettings
    tools: ToolSettings
    mcp: McpSettings
    http: HttpSettings
    health: HealthSettings
    backup: BackupSettings


def _checked(home: Path, root: Section, exposed: bool, findings: Findings) -> Settings:
    checker = Checker(root, findings)
    for key in root.entries:
        if key not in SECTIONS and key not in BY_CHANNEL:
            _unknown_section(checker, key)
    ruled = _ruled(checker, home)
    simple: dict[str, Any] = {
        name: _section(checker, name, SECTIONS[name]) for name in _WITHOUT_RULES
    }
    owner, channels = _owner(checker), _channels(checker)
    findings.raise_if_any()
    assert ruled is not None  # where it is, that was found
    _warn_of_tools(checker, ruled.tools, ruled.mcp)
    if exposed:
        _warn_of_secrets(checker, ruled, channels)
    # Every part is checked; checking the whole again would cost a tenth of the start-up time.
    return Settings.model_construct(
        home=home,
        model=ruled.model,
        memory=ruled.memory,
        tools=ruled.tools,
        mcp=ruled.mcp,
        http=ruled.http.beside(_webhook_hosts(channels)),
        health=ruled.health,
        backup=ruled.backup,
        owner=owner,
        channels=channels,
        warnings=findings.warnings,
        **simple,
    )


def _ruled(checker: Checker, home: Path) -> _Ruled | None:
    """None where one of them is wrong in itself, which is a finding then; what is wrong between
    those that are right is found all the same."""
    model = _section(checker, "model", ModelSettings)
    memory = _section(checker, "memory", MemorySettings)
    tools = _section(checker, "tools", ToolSettings)
    mcp = _section(checker, "mcp", McpSettings)
    http = _section(checker, "http", HttpSettings)
    health = _section(checker, "health", HealthSettings)
    backup = _section(checker, "backup", BackupSettings)
    memory = _judge_models(checker, model, memory)
    _judge_programs(checker, home, tools, mcp, backup)
    if health is not None:
        _report(checker, "health", health.faults())
    if (
        model is None
        or memory is None
        or tools is None
        or mcp is None
        or http is None
        or health is None
        or backup is None
    ):
        return None
    return _Ruled(model, memory, tools, mcp, http, health, backup)


def _judge_models(
    checker: Checker, model: ModelSettings | None, memory: MemorySettings | None
) -> MemorySettings | None:
    """The memory's settings, with the server of the model where they name no other."""
    if model is None:
        return memory
    _report(checker, "model", model.faults())
    if memory is None:
        return None
    embeddings = memory.embeddings.completed(model.base_url, model.api_key)
    memory = memory.model_copy(update={"embeddings": embeddings})
    _report(checker, "memory", memory.faults())
    return memory


def _judge_programs(
    checker: Checker,
    home: Path,
    tools: ToolSettings | None,
    mcp: McpSettings | None,
    backup: BackupSettings | None,
) -> None:
    """What the agent's programs may do, and that none of them sees the backups."""
    if tools is not None:
        _report(checker, "tools", tools.faults(home))
    if mcp is not None:
        _report(checker, "mcp", mcp.faults(home))
    if backup is not None and tools is not None and mcp is not None:
        _report(checker, "backup", backup.faults(home, _shown(tools, mcp)))


def _shown(tools: ToolSettings, mcp: McpSettings) -> Iterator[str]:
    """The folders that programs of the agent see beside the workspace."""
    yield from tools.exec.paths
    for server in mcp.servers.values():
        yield from (*server.paths, *server.writable)


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
    checker: Checker, ruled: _Ruled, channels: Mapping[str, ChannelSettings]
) -> None:
    for name in ("model", "memory", "tools", "mcp", "health"):
        checker.warn_of_literal_secrets((name,), getattr(ruled, name))
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
