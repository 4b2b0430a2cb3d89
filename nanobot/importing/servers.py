"""Which server a model is asked at: the other program knows many by name, and finds out by itself
which one is meant. Here that is spelled out, as an address and a key. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nanobot.importing.foreign import Fields

_GATEWAYS: Mapping[str, str] = {
    "openrouter": "https://openrouter.ai/api/v1",
    "orcarouter": "https://api.orcarouter.ai/v1",
    "edenai": "https://api.edenai.run/v3",
    "opencode": "https://opencode.ai/zen/v1",
    "opencode_zen": "https://opencode.ai/zen/v1",
    "opencode_go": "https://opencode.ai/zen/go/v1",
    "huggingface": "https://router.huggingface.co/v1",
    "skywork": "https://api.apifree.ai/agent/v1",
    "aihubmix": "https://aihubmix.com/v1",
    "siliconflow": "https://api.siliconflow.cn/v1",
    "novita": "https://api.novita.ai/openai",
    "volcengine": "https://ark.cn-beijing.volces.com/api/v3",
    "volcengine_coding_plan": "https://ark.cn-beijing.volces.com/api/coding/v3",
    "byteplus": "https://ark.ap-southeast.bytepluses.com/api/v3",
    "byteplus_coding_plan": "https://ark.ap-southeast.bytepluses.com/api/coding/v3",
    "modelscope": "https://api-inference.modelscope.cn/v1",
}
"""Servers of models of many makers, by the other program's names for them."""

_MAKERS: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("https://api.anthropic.com/v1", "anthropic", "claude"),
    "openai": ("https://api.openai.com/v1", "openai", "gpt"),
    "deepseek": ("https://api.deepseek.com", "deepseek"),
    "gemini": ("https://generativelanguage.googleapis.com/v1beta/openai", "gemini", "gemma"),
    "zhipu": ("https://open.bigmodel.cn/api/paas/v4", "zhipu", "glm", "zai"),
    "dashscope": ("https://dashscope.aliyuncs.com/compatible-mode/v1", "qwen", "dashscope"),
    "moonshot": ("https://api.moonshot.ai/v1", "moonshot", "kimi"),
    "minimax": ("https://api.minimax.io/v1", "minimax"),
    "mistral": ("https://api.mistral.ai/v1", "stral"),
    "stepfun": ("https://api.stepfun.com/v1", "stepfun", "step-"),
    "xiaomi_mimo": ("https://api.xiaomimimo.com/v1", "xiaomi_mimo"),
    "longcat": ("https://api.longcat.chat/openai/v1", "longcat"),
    "ant_ling": ("https://api.ant-ling.com/v1", "ant_ling"),
    "nvidia": ("https://integrate.api.nvidia.com/v1", "nvidia", "nemotron"),
    "groq": ("https://api.groq.com/openai/v1", "groq"),
    "qianfan": ("https://qianfan.baidubce.com/v2", "qianfan", "ernie"),
}
"""Servers of those who make models, and parts of a model's name that tell its maker."""

_LOCAL: Mapping[str, str] = {
    "vllm": "http://localhost:8000/v1",
    "ollama": "http://localhost:11434/v1",
    "lm_studio": "http://localhost:1234/v1",
    "atomic_chat": "http://localhost:1337/v1",
    "ovms": "http://localhost:8000/v3",
}

_UNREACHED: Mapping[str, str] = {
    "azure_openai": "Azure's own API",
    "bedrock": "AWS Bedrock",
    "openai_codex": "a sign-in of Codex",
    "github_copilot": "a sign-in of GitHub Copilot",
    "xai_grok": "a sign-in of Grok",
    "kimi_coding": "Anthropic's API",
    "minimax_anthropic": "Anthropic's API",
}

_LAST_PART = ("aihubmix", "volcengine_coding_plan", "byteplus_coding_plan")
"""Servers that know a model by what follows the last `/` of its name."""


@dataclass(frozen=True, slots=True)
class Server:
    """A model at its server. Where `problem` is not empty it cannot be used, and that says why."""

    model: str
    base_url: str = ""
    key: str = ""
    provider: str = ""
    problem: str = ""
    dropped: tuple[str, ...] = ()
    """Settings of this server that have no counterpart here."""


def server_for(model: str, provider: str, providers: Fields) -> Server:
    """Where `model` is asked. `provider` is the name given for it, `auto` or empty where it has to
    be found out; `providers` is that part of the configuration."""
    given = provider.replace("-", "_").lower()
    name = given if given not in ("", "auto") else _guessed(model, providers)
    if not name:
        return Server(model, problem="no provider in it has a key")
    if name in _UNREACHED:
        return Server(model, provider=name, problem=f"{_UNREACHED[name]} is not spoken here")
    entry = _entries(providers).get(name, Fields({}))
    url = entry.text("api_base").rstrip("/") or address_of(name)
    if not url:
        return Server(model, provider=name, problem=f"the provider {name} has no address")
    extras = ("extra_headers", "extra_body", "extra_query", "proxy", "thinking_style")
    dropped = tuple(extra for extra in extras if entry.get(extra))
    return Server(_named(model, name), url, entry.text("api_key"), name, dropped=dropped)


def address_of(provider: str) -> str:
    """Where a provider's server is, if it is known."""
    maker = _MAKERS.get(provider, ("",))[0]
    return _GATEWAYS.get(provider) or _LOCAL.get(provider) or maker


def _guessed(model: str, providers: Fields) -> str:
    """As the other program goes about it: by the name's first part, by words in it, a local server,
    then whatever has a key, those that serve every model first."""
    lower = model.lower()
    prefix = lower.partition("/")[0].replace("-", "_") if "/" in lower else ""
    entries = _entries(providers)
    usable = [name for name, entry in entries.items() if entry.text("api_key")]
    addressed = [name for name, entry in entries.items() if entry.text("api_base")]
    local = [name for name in _LOCAL if name in addressed]
    if prefix in (*usable, *local, *_UNREACHED):
        return prefix
    worded = [name for name, (_, *words) in _MAKERS.items() if any(word in lower for word in words)]
    is_named = bool(prefix and address_of(prefix))  # a maker: no local server is meant
    order = (*worded, *(() if is_named else local), *_GATEWAYS, *_MAKERS, *usable)
    known = {*usable, *local}
    return next((name for name in order if name in known), next(iter(addressed), ""))


def _entries(providers: Fields) -> Mapping[str, Fields]:
    """The providers that are written down, by their names in snake_case."""
    found: dict[str, Fields] = {}
    for name, entry in providers.objects():
        humped = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
        found.setdefault(humped.lstrip("_").replace("-", "_"), entry)
    return found


def _named(model: str, provider: str) -> str:
    """The model as its server knows it."""
    if provider in _LAST_PART:
        return model.rpartition("/")[2]
    first, slash, rest = model.partition("/")
    if slash and provider not in _GATEWAYS and first.replace("-", "_").lower() == provider:
        return rest
    return model
