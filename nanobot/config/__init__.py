"""The configuration: `config.yaml`, `secrets.env` and the environment become one frozen value.

Whatever is wrong is found before anything starts, and is said with file, line, key and the fix.
Nothing that this package says to a person ever repeats a configured value, since any of them may be
a secret in the wrong place. Importing it costs nothing; pydantic is loaded when settings are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot.config.home import home_folder

if TYPE_CHECKING:
    from nanobot.config.load import load_settings
    from nanobot.config.memory import (
        CronSettings,
        DreamSettings,
        EmbeddingSettings,
        HeartbeatSettings,
        LimitSettings,
        MemorySettings,
        SkillSettings,
    )
    from nanobot.config.model import (
        FallbackModel,
        ModelSettings,
        PriceSettings,
        TranscriptionSettings,
    )
    from nanobot.config.schema import config_schema, settings_table
    from nanobot.config.service import (
        BackupSettings,
        HealthSettings,
        HttpSettings,
        LogSettings,
        RetentionSettings,
    )
    from nanobot.config.settings import AgentSettings, ChannelSettings, Settings
    from nanobot.config.tools import (
        ApprovalSettings,
        ExecSettings,
        HelperSettings,
        McpServerSettings,
        McpSettings,
        SearchSettings,
        ToolSettings,
        WebSettings,
    )

_HOMES = {
    "load_settings": "load",
    "config_schema": "schema",
    "settings_table": "schema",
    "McpServerSettings": "mcp",
    "McpSettings": "mcp",
    "DreamSettings": "memory",
    "EmbeddingSettings": "memory",
    "MemorySettings": "memory",
    "FallbackModel": "model",
    "ModelSettings": "model",
    "PriceSettings": "model",
    "TranscriptionSettings": "model",
    "CronSettings": "routines",
    "HeartbeatSettings": "routines",
    "LimitSettings": "routines",
    "SkillSettings": "routines",
    "BackupSettings": "service",
    "HealthSettings": "service",
    "HttpSettings": "service",
    "LogSettings": "service",
    "RetentionSettings": "service",
    "ApprovalSettings": "tools",
    "ExecSettings": "tools",
    "HelperSettings": "tools",
    "SearchSettings": "tools",
    "ToolSettings": "tools",
    "WebSettings": "tools",
    "AgentSettings": "settings",
    "ChannelSettings": "settings",
    "Settings": "settings",
}


def __getattr__(name: str) -> object:
    """Load the module behind a public name when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


__all__ = [
    "AgentSettings",
    "ApprovalSettings",
    "BackupSettings",
    "ChannelSettings",
    "CronSettings",
    "DreamSettings",
    "EmbeddingSettings",
    "ExecSettings",
    "FallbackModel",
    "HealthSettings",
    "HeartbeatSettings",
    "HelperSettings",
    "HttpSettings",
    "LimitSettings",
    "LogSettings",
    "McpServerSettings",
    "McpSettings",
    "MemorySettings",
    "ModelSettings",
    "PriceSettings",
    "RetentionSettings",
    "SearchSettings",
    "Settings",
    "SkillSettings",
    "ToolSettings",
    "TranscriptionSettings",
    "WebSettings",
    "config_schema",
    "home_folder",
    "load_settings",
    "settings_table",
]
