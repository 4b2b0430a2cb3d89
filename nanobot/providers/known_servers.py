"""Known model servers: their names, addresses and peculiarities.

Onboarding, doctor, the hints of errors and docs/models.md share this data. Other servers work too,
if they have Chat Completions. Each provider documents its address for OpenAI's clients. Prices and
sizes of models are not here, because they change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct, field

from nanobot.text import close_matches

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class KnownProvider(Struct, frozen=True):
    """A model server. `id` is its name in scripts, `example` one of its models.

    A local server has a command that starts it (`start`), and its `base_url` has the usual port.
    The others have the usual variable for the key (`key_variable`) and a page that creates keys
    (`keys_at`).

    `listing` is the path, from the root of the server, of a list of models with more facts than
    `/models`. It takes the key in the header `key_header`, and `headers`. `embeddings` and
    `transcription` are models for `/embeddings` and `/audio/transcriptions`. `api` is the API of
    its models: Chat Completions, or Anthropic's Messages."""

    id: str
    name: str
    base_url: str
    example: str
    key_variable: str = ""
    keys_at: str = ""
    start: str = ""
    listing: str = ""
    key_header: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    embeddings: str = ""
    transcription: str = ""
    api: Literal["chat", "messages"] = "chat"

    @property
    def is_local(self) -> bool:
        return bool(self.start)

    @property
    def port(self) -> int:
        return urlsplit(self.base_url).port or 0

    def serves(self, base_url: str) -> bool:
        """Return True if `base_url` is an address of this server."""
        try:
            ours, theirs = urlsplit(self.base_url), urlsplit(base_url)
            if self.is_local:
                return theirs.port == ours.port and theirs.hostname in _LOOPBACK
        except ValueError:  # an invalid address is reported by the request
            return False
        return theirs.hostname == ours.hostname and theirs.port == ours.port

    def hint(self, status: int, key: str, model: str) -> str:
        """Return advice about a status (0: unreachable), or an empty text. `key` is the section of
        the settings."""
        if status == 0 and self.is_local:
            return f"Is {self.name} running? To start it, run `{self.start}`."
        if status == 401 and self.keys_at:
            text = f"Check {key}.api_key: {self.name} doesn't accept it."
            return f"{text} Create a key at {self.keys_at}"
        if status == 404:
            address = f" and {key}.base_url, which ends in /v1" if self.is_local else ""
            text = f"{self.name} has no model {model!r}. Check {key}.name{address}."
            return f"{text} {self.how_to_get}"
        return ""

    @property
    def how_to_get(self) -> str:
        """Advice for people on finding a model's name."""
        if self.id == "ollama":
            return "`ollama list` shows your models, and `ollama pull NAME` downloads one."
        return "To list its models, run `nanobot onboard`."


PROVIDERS: tuple[KnownProvider, ...] = (
    KnownProvider(
        id="openai",
        name="OpenAI",
        base_url="https://api.openai.com/v1",  # https://platform.openai.com/docs/api-reference
        example="gpt-5-mini",
        key_variable="OPENAI_API_KEY",
        keys_at="https://platform.openai.com/api-keys",
        embeddings="text-embedding-3-small",
        transcription="whisper-1",
    ),
    KnownProvider(
        id="anthropic",
        name="Anthropic",
        # https://platform.claude.com/docs/en/api/messages/create
        base_url="https://api.anthropic.com/v1",
        example="claude-sonnet-4-6",
        key_variable="ANTHROPIC_API_KEY",
        keys_at="https://platform.claude.com/settings/keys",
        listing="/v1/models?limit=1000",
        key_header="x-api-key",
        headers={"anthropic-version": "2023-06-01"},
        api="messages",
    ),
    KnownProvider(
        id="gemini",
        name="Google Gemini",
        # https://ai.google.dev/gemini-api/docs/openai
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        example="gemini-3.5-flash",
        key_variable="GEMINI_API_KEY",
        keys_at="https://aistudio.google.com/apikey",
        listing="/v1beta/models?pageSize=1000",
        key_header="x-goog-api-key",
        embeddings="gemini-embedding-001",
    ),
    KnownProvider(
        id="openrouter",
        name="OpenRouter",
        base_url="https://openrouter.ai/api/v1",  # https://openrouter.ai/docs/quickstart
        example="openai/gpt-5-mini",
        key_variable="OPENROUTER_API_KEY",
        keys_at="https://openrouter.ai/settings/keys",
    ),
    KnownProvider(
        id="groq",
        name="Groq",
        base_url="https://api.groq.com/openai/v1",  # https://console.groq.com/docs/openai
        example="openai/gpt-oss-120b",
        key_variable="GROQ_API_KEY",
        keys_at="https://console.groq.com/keys",
        transcription="whisper-large-v3-turbo",
    ),
    KnownProvider(
        id="deepseek",
        name="DeepSeek",
        base_url="https://api.deepseek.com",  # https://api-docs.deepseek.com/
        example="deepseek-v4-flash",
        key_variable="DEEPSEEK_API_KEY",
        keys_at="https://platform.deepseek.com/api_keys",
    ),
    KnownProvider(
        id="mistral",
        name="Mistral",
        base_url="https://api.mistral.ai/v1",  # https://docs.mistral.ai/api/
        example="mistral-medium-latest",
        key_variable="MISTRAL_API_KEY",
        keys_at="https://console.mistral.ai/api-keys",
        embeddings="mistral-embed",
        transcription="voxtral-mini-latest",
    ),
    KnownProvider(
        id="xai",
        name="xAI",
        base_url="https://api.x.ai/v1",  # https://docs.x.ai/docs/api-reference
        example="grok-4.3",
        key_variable="XAI_API_KEY",
        keys_at="https://console.x.ai",
    ),
    KnownProvider(
        id="ollama",
        name="Ollama",
        base_url="http://127.0.0.1:11434/v1",  # https://docs.ollama.com/api/openai-compatibility
        example="qwen3:8b",
        start="ollama serve",
        embeddings="nomic-embed-text",
    ),
    KnownProvider(
        id="lmstudio",
        name="LM Studio",
        base_url="http://127.0.0.1:1234/v1",  # https://lmstudio.ai/docs/developer/openai-compat
        example="qwen/qwen3-8b",
        start="lms server start",
        embeddings="text-embedding-nomic-embed-text-v1.5",
    ),
    KnownProvider(
        id="llamacpp",
        name="llama.cpp",
        # https://github.com/ggml-org/llama.cpp/tree/master/tools/server
        base_url="http://127.0.0.1:8080/v1",
        example="qwen3-8b",
        start="llama-server -m MODEL.gguf --jinja",
    ),
    KnownProvider(
        id="vllm",
        name="vLLM",
        # https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
        base_url="http://127.0.0.1:8000/v1",
        example="Qwen/Qwen3-8B",
        start="vllm serve MODEL --enable-auto-tool-choice --tool-call-parser hermes",
    ),
)
"""In the order in which they are offered."""

_MOST_SIMILAR = 3


def provider_at(
    base_url: str, providers: Sequence[KnownProvider] = PROVIDERS
) -> KnownProvider | None:
    return next((one for one in providers if one.serves(base_url)), None)


def provider_for(base_url: str, api: str) -> KnownProvider | None:
    """Return the provider at an address. Unknown servers with Anthropic's API are treated like
    Anthropic's."""
    known = provider_at(base_url)
    if known is None and api == "messages":
        known = next(one for one in PROVIDERS if one.api == api)
    return known


def similar_names(wanted: str, names: Sequence[str], most: int = _MOST_SIMILAR) -> tuple[str, ...]:
    """Return possible intended names: names that contain `wanted`, then similar ones."""
    text = wanted.lower().rpartition("/")[2]
    low = {name.lower().rpartition("/")[2]: name for name in names}
    found = [name for end, name in low.items() if text and text in end]
    found += (low[end] for end in close_matches(text, low, most))
    return tuple(dict.fromkeys(found))[:most]


def tools_hint(refusal: str) -> str:
    """Return advice for a server that refused a request because of its tools, or an empty text if
    `refusal`, the server's text, blames something else.

    Sources: llama.cpp, common/chat.cpp; vLLM, entrypoints/openai/serving_chat.py; Ollama,
    server/routes.go; https://openrouter.ai/docs/features/tool-calling"""
    return next((hint for wording, hint in _TOOLS_REFUSED if wording in refusal.lower()), "")


_TOOLS_REFUSED = (
    ("--jinja", "Start llama-server with --jinja."),
    (
        "--enable-auto-tool-choice",
        "Start vLLM with --enable-auto-tool-choice and the --tool-call-parser for this model.",
    ),
    ("does not support tools", "This model can't call tools. Choose one that can."),
    ("support tool use", "This model can't call tools. Choose one that can."),
)
