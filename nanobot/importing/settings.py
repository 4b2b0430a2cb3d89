"""The other program's config.json, converted to a valid config.yaml.

Only chosen values are imported: a default of the other program becomes our default. Settings that
nanobot lacks or rejects are reported and stay readable in the original. The other program knows
many servers by name, and finds the server of a model by itself. Here address and key are written
out."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

import yaml
from msgspec import Struct

from nanobot.config.document import ConfigErrors
from nanobot.config.load import CONFIG_FILE, SECRETS_FILE, load_settings
from nanobot.errors import ConfigError
from nanobot.importing.files import ImportReport
from nanobot.importing.foreign import OURS, Fields, People, Secrets
from nanobot.origin import how_to_install
from nanobot.providers.known_servers import provider_at
from nanobot.text import escape_invisible

_SERVERS: Mapping[str, str] = {
    "openrouter": "https://openrouter.ai/api/v1",
    "huggingface": "https://router.huggingface.co/v1",
    "aihubmix": "https://aihubmix.com/v1",
    "siliconflow": "https://api.siliconflow.cn/v1",
    "volcengine": "https://ark.cn-beijing.volces.com/api/v3",
    "modelscope": "https://api-inference.modelscope.cn/v1",
    "anthropic": "https://api.anthropic.com/v1",
    "openai": "https://api.openai.com/v1",
    "deepseek": "https://api.deepseek.com",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai",
    "zhipu": "https://open.bigmodel.cn/api/paas/v4",
    "dashscope": "https://dashscope.aliyuncs.com/compatible-mode/v1",
    "moonshot": "https://api.moonshot.ai/v1",
    "minimax": "https://api.minimax.io/v1",
    "mistral": "https://api.mistral.ai/v1",
    "nvidia": "https://integrate.api.nvidia.com/v1",
    "groq": "https://api.groq.com/openai/v1",
    "vllm": "http://localhost:8000/v1",
    "ollama": "http://localhost:11434/v1",
    "lm_studio": "http://localhost:1234/v1",
}
"""By the other program's names for them. The first six serve models of many makers."""

_MANY_MAKERS = tuple(_SERVERS)[:6]
_WORDS: Mapping[str, str] = {
    "claude": "anthropic", "gpt": "openai", "deepseek": "deepseek", "gemini": "gemini",
    "glm": "zhipu", "qwen": "dashscope", "kimi": "moonshot",
}  # fmt: skip
"""Words in the name of a model, and its maker."""
_OTHER_API = ("azure_openai", "bedrock", "minimax_anthropic")  # no Chat Completions


class NoServer(Exception):
    """A model cannot be used from here, with the reason."""


def server_for(model: str, provider: str, providers: Fields) -> tuple[str, str, str, Fields]:
    """Return the name of `model` on its server, the address, the provider and the provider's entry.
    `provider` is the given name. If that is `auto` or empty, it is the one that the model's name
    begins with, or its maker, or the first of `_SERVERS` and then of `providers` (a section of the
    configuration) that has a key or an address. Raise `NoServer`."""
    entries = {to_snake_case(name): entry for name, entry in providers.objects()}
    name, (first, slash, rest) = to_snake_case(provider), model.partition("/")
    if name in ("", "auto"):
        name = find_provider(model, entries)
    entry = entries.get(name, Fields({}))
    url = entry.text("api_base").rstrip("/") or _SERVERS.get(name, "")
    if name in _OTHER_API or not url:
        raise NoServer(f"the provider {name} is not supported")
    if slash and name not in _MANY_MAKERS and to_snake_case(first) == name:
        model = rest
    return model, url, name, entry


def find_provider(model: str, entries: Mapping[str, Fields]) -> str:
    usable = [n for n, entry in entries.items() if entry.text("api_key") or entry.text("api_base")]
    makers = (maker for word, maker in _WORDS.items() if word in model.lower())
    for one in (to_snake_case(model.partition("/")[0]), *makers, *_SERVERS, *usable):
        if one in usable:
            return one
    raise NoServer("no provider has a key")


def to_snake_case(name: str) -> str:
    humped = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return humped.lstrip("_").replace("-", "_")


Tree = dict[str, object]

_PAGE = "websocket"  # the other program's page for its own machine, which is always on
_LISTENERS: Mapping[str, str] = {"groq": "whisper-large-v3", "openai": "whisper-1"}
"""Servers for speech to text, with their models."""
_ODD = re.compile(r"_*[^A-Za-z0-9-]+")


class Conversion(Struct):
    """A running conversion: its input and its results."""

    config: Fields
    people: People
    groups: Iterable[tuple[str, str]]
    """Groups with conversations: channel and id."""
    secrets: Secrets
    report: ImportReport

    def tree(self) -> Tree:
        """Return the settings, and put differences into `report`."""
        config, defaults = self.config, self.config.inner("agents", "defaults")
        zone, mode = defaults.text("timezone"), defaults.text("timezone_mode")
        is_chosen = mode == "manual" or (mode != "auto" and zone != "UTC")
        dream, beat = defaults.inner("dream"), config.inner("gateway", "heartbeat")
        tools, hours = config.inner("tools"), read_chosen(dream, "interval_h", 2)
        seconds = read_chosen(beat, "interval_s", 1_800)
        every = f"{max(1, seconds // 60)}m" if seconds is not None else ""
        tree = drop_empty(
            model=self._convert_model(defaults)
            | drop_empty(transcription=self._convert_transcription()),
            agent=drop_empty(
                max_iterations=read_chosen(defaults, "max_tool_iterations", 40, 100, 200),
                timezone=zone * is_chosen,
            ),
            memory=drop_empty(idle_minutes=read_chosen(defaults, "idle_compact_after_minutes", 15)),
            dream=convert_switch(dream, "enabled")
            | drop_empty(cron=dream.text("cron") or (f"every {hours}h" if hours else "")),
            tools=drop_empty(
                exec=convert_switch(tools.inner("exec"), "enable")
                | drop_empty(timeout_seconds=read_chosen(tools.inner("exec"), "timeout", 60)),
                web=self._convert_web(tools),
            ),
            mcp=drop_empty(servers=self._convert_mcp(tools.inner("mcp_servers"))),
            heartbeat=drop_empty(every=every if beat.flag("enabled", otherwise=True) else "off"),
            skills=drop_empty(disabled=list(defaults.texts("disabled_skills"))),
            owner={name: list(ids) for name, ids in self.people.owners.items() if name in OURS},
            channels=self._convert_channels(config.inner("channels")),
        )
        if unfit := self.secrets.unfit:
            self.report.add_todo(
                f"Copy these secrets by hand: {', '.join(unfit)}. Each contains a line break or "
                "another invisible character."
            )
        return tree

    def _convert_model(self, defaults: Fields) -> Tree:
        presets = self.config.inner("model_presets")
        chosen = presets.inner(defaults.text("model_preset")) or defaults
        found = self._convert_server(chosen)
        if not found:
            self.report.add_todo(
                "Choose a model with `nanobot onboard`, or in the `model` section of config.yaml."
            )
            return {}
        fallbacks = [
            self._convert_server(presets.inner(one) if isinstance(one, str) else Fields(one))
            for one in defaults.items("fallback_models")
        ]
        return found | drop_empty(
            context_window=read_chosen(chosen, "context_window_tokens", 65_536, 200_000),
            max_completion_tokens=read_chosen(chosen, "max_tokens", 8_192),
            fallbacks=[one for one in fallbacks if one],
        )

    def _convert_server(self, chosen: Fields) -> Tree:
        """Return name, address and key of one model, or nothing if it cannot be used."""
        name = chosen.text("model")
        if not name:
            return {}
        try:
            model, url, provider, entry = server_for(
                name, chosen.text("provider"), self.config.inner("providers")
            )
        except NoServer as error:
            self.report.add_change(f"The model {name} can't be used: {error}.")
            return {}
        for extra in ("extra_query", "proxy", "thinking_style"):
            if entry.get(extra):
                self.report.add_change(
                    f"The setting {extra} of the provider {provider} is not supported."
                )
        key = self.secrets.put(f"{provider}_API_KEY", entry.text("api_key"))
        known = provider_at(url)
        api = known.api if known and known.api != "chat" else ""
        return {"name": model, "base_url": url} | drop_empty(
            api=api,
            api_key=key,
            reasoning_effort=chosen.text("reasoning_effort"),
            extra_body=entry.get("extra_body"),
            headers=self._put_secrets(provider, entry, "extra_headers"),
        )

    def _convert_transcription(self) -> Tree:
        asked, old = self.config.inner("transcription"), self.config.inner("channels")
        name = asked.text("provider") or old.text("transcription_provider") or "groq"
        entry = self.config.inner("providers", name)
        if not asked.flag("enabled", otherwise=True) or not entry.text("api_key"):
            return {}
        if name not in _LISTENERS:
            self.report.add_change(f"Transcription with {name} is not supported.")
            return {}
        return drop_empty(
            base_url=entry.text("api_base").rstrip("/") or _SERVERS.get(name, ""),
            api_key=self.secrets.put(f"{name}_API_KEY", entry.text("api_key")),
            model=asked.text("model") or _LISTENERS[name],
            language=asked.text("language") or old.text("transcription_language"),
        )

    def _convert_web(self, tools: Fields) -> Tree:
        web, search = tools.inner("web"), tools.inner("web", "search")
        name, key = search.text("provider") or "duckduckgo", search.text("api_key")
        found: Tree = {}
        if name != "duckduckgo" and (key or name not in ("brave", "tavily")):
            # Without a key the other program uses DuckDuckGo itself.
            found = drop_empty(
                provider=name,
                api_key=self.secrets.put(f"{name}_API_KEY", key),
                base_url=search.text("base_url"),
            )
        return convert_switch(web, "enable") | drop_empty(
            proxy=self.secrets.put("WEB_PROXY", web.text("proxy")),
            allow_hosts=list(tools.texts("ssrf_whitelist")),
            search=found,
        )

    def _convert_mcp(self, servers: Fields) -> Tree:
        found: Tree = {}
        for name, server in servers.objects():
            ours = _ODD.sub("_", name).strip("_-")[:32] or "server"
            if ours in found:
                self.report.add_change(
                    f"The MCP server {name} was skipped, because another server has the same name."
                )
                continue
            found[ours] = self._convert_mcp_server(name, server)
        if found:
            self.report.add_todo(
                "MCP servers run in a sandbox without access to the network or your folders. "
                "Give them access with `network:` and `paths:` (docs/mcp.md)."
            )
            if find_spec("mcp") is None:
                self.report.add_todo(
                    f"MCP servers require the extra mcp (docs/mcp.md). {how_to_install('mcp')}"
                )
        return found

    def _convert_mcp_server(self, name: str, server: Fields) -> Tree:
        if server.text("type") == "sse" or server.text("auth") or server.text("cwd"):
            self.report.add_change(
                f"The MCP server {name} uses SSE, a sign-in, or its own working folder. nanobot "
                "supports none of these."
            )
        wanted = (tool for tool in server.texts("enabled_tools") if tool != "*")
        url, more = server.text("url"), f"MCP_{name}"
        program, site = (Fields({}), server) if url else (server, Fields({}))
        own: Tree = {"url": url} if url else {"command": server.text("command")}
        return own | drop_empty(
            args=list(program.texts("args")),
            env=self._put_secrets(more, program, "env"),
            headers=self._put_secrets(more, site, "headers"),
            tools=[tool.removeprefix(f"mcp_{name}_") for tool in wanted],
            timeout_seconds=read_chosen(server, "tool_timeout", 30),
        )

    def _put_secrets(self, name: str, server: Fields, key: str) -> Tree:
        value, put = server.get(key), self.secrets.put
        values = value.items() if isinstance(value, dict) else ()
        texts = {key: text for key, text in values if text and isinstance(text, str)}
        return {key: put(f"{name}_{key}", text) for key, text in texts.items()}

    def _convert_channels(self, channels: Fields) -> Tree:
        found: Tree = {}
        for name, channel in channels.objects():
            on, allowed = channel.flag("enabled", otherwise=False), self.people.allowed
            is_set_up = {"telegram": channel.text("token"), "whatsapp": allowed.get(name)}
            if name not in OURS:
                if on and name != _PAGE:
                    gone = f"The channel {name} is not supported."
                    self.report.add_change(gone)
            elif on or is_set_up[name]:
                more = self._convert_telegram(channel) if name == "telegram" else {}
                found[name] = {"enabled": on} | self._convert_access(name, channel) | more
        if channels.inner("whatsapp").flag("enabled", otherwise=False):
            self.report.add_todo("Sign in to WhatsApp again: `nanobot channels login whatsapp`.")
        for entry in self.people.unclear:
            self.report.add_todo(
                f"Pair {entry} again. It is a name, not an id, and names can change hands."
            )
        return found

    def _convert_access(self, name: str, channel: Fields) -> Tree:
        policy = channel.text("group_policy") or ("open" if name == "whatsapp" else "mention")
        owners = self.people.owners.get(name, ())
        return {"groups": policy if policy == "open" else "mention"} | drop_empty(
            allow_from=[id for id in self.people.allowed.get(name, ()) if id not in owners],
            allow_groups={id: [] for channel, id in self.groups if channel == name},
        )

    def _convert_telegram(self, channel: Fields) -> Tree:
        webhook = channel.text("webhook_url") if channel.text("mode") == "webhook" else ""
        previews: Tree = {} if channel.flag("streaming", otherwise=True) else {"previews": False}
        return previews | drop_empty(
            token=self.secrets.put("TELEGRAM_TOKEN", channel.text("token")),
            proxy=self.secrets.put("TELEGRAM_PROXY", channel.text("proxy")),
            mode="webhook" if webhook else "",
            webhook_url=webhook,
        )


def read_chosen(fields: Fields, name: str, *usual: int) -> int | None:
    """Return a number unless it is the default in any of the other program's versions."""
    number = fields.number(name)
    return number if number not in usual else None


def convert_switch(fields: Fields, name: str) -> Tree:
    return {} if fields.flag(name, otherwise=True) else {"enabled": False}


def drop_empty(**values: object) -> Tree:
    """Drop empty values."""
    return {name: v for name, v in values.items() if v or (v == 0 and not isinstance(v, bool))}


_HEAD = """\
# nanobot's settings, imported from HKUDS/nanobot by `nanobot import`. Others have their defaults.
# `nanobot config example` prints them all, and docs/configuration.md explains them.
#
# ${NAME} takes a value from the environment or from secrets.env in this folder.
"""
_ANYTHING = "0:unknown"  # placeholder for an unknown variable's value; passes most checks


def render_config(tree: Tree, secrets: Secrets, report: ImportReport) -> str:
    """Return config.yaml with everything that nanobot accepts."""
    tree = {name: escape_tree(value) for name, value in tree.items()}
    while True:  # a removed setting may reveal the next problem
        text = _HEAD + yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=100)
        problems = find_problems(text, secrets, Path(report.target))
        left_out = {path: error for error in problems if (path := remove_nearest(tree, error.key))}
        for path, error in left_out.items():
            report.add_change(f"{path} was skipped: {reason_of(error)}.")
        if not left_out:
            break
    for error in problems:
        report.add_todo(f"Fix config.yaml: {reason_of(error)}.")
    return text


def escape_tree(value: object) -> object:
    """Escape characters that a configuration must not contain, so that it rejects them."""
    match value:
        case str():
            return escape_invisible(value)
        case dict():
            return {escape_invisible(key): escape_tree(inner) for key, inner in value.items()}
        case list():
            return [escape_tree(inner) for inner in value]
    return value


def find_problems(text: str, secrets: Secrets, home: Path) -> tuple[ConfigError, ...]:
    """Return its problems. Variables that are set outside it count as valid."""
    elsewhere = {name: os.environ.get(name, _ANYTHING) for name in secrets.awaited}
    try:
        load_settings(home, elsewhere, texts={CONFIG_FILE: text, SECRETS_FILE: secrets.as_text()})
    except ConfigErrors as errors:
        return errors.problems
    return ()


def remove_nearest(tree: Tree, key: str) -> str:
    """Remove the value at `key` or the nearest around it, and return its path, empty if there is
    none."""
    parent: Tree = {}
    branch: object = tree
    path: list[str] = []
    for name in re.split(r"[.\[]", key):
        if not isinstance(branch, dict) or name not in branch:
            break
        parent, branch = branch, branch[name]
        path.append(name)
    if path:
        del parent[path[-1]]
    return ".".join(path)


def reason_of(error: ConfigError) -> str:
    return str(error).removeprefix(f"{error.file}:{error.line}: ").removeprefix(f"{error.file}: ")
