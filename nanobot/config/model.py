"""The settings of the language model and of what helps it: fallbacks, and the models for speech and
for embeddings.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from msgspec import Meta
from msgspec.structs import replace

from nanobot.config.values import (
    OFFICIAL_API,
    AbsolutePath,
    ApiKey,
    Count,
    Duration,
    Name,
    Seconds,
    Url,
    exposed_path_faults,
    is_official,
    missing_key,
    needs_key,
)
from nanobot.validation import Checked, Fault, SecretStr


class SideModel(Checked, frozen=True):
    """A model beside the main one, should there be one: off while it has no name."""

    base_url: Url = ""
    """Where its API is, up to and including `/v1`; left out, that of the main model."""
    api_key: ApiKey = SecretStr("")
    """Its key; left out, that of the main model if the server is the same."""
    model: str = ""
    """Model name on that server."""

    @property
    def lacks_key(self) -> bool:
        """Whether a key is needed that is not there; for settings that are complete."""
        return bool(self.model) and needs_key(self.base_url, self.api_key)


Price = Annotated[float, Meta(ge=0)]

SAFETY_TOKENS = 1_024
"""Kept free in the context window, because token counts are estimates."""
SMALL_WINDOW = 8_192
"""Below this, fewer tools are offered, so that there is room to talk."""
LEAST_PROMPT_TOKENS = 2_000
"""The least a prompt must have: 1,000 for instructions and tools, 1,000 for the conversation."""


class EmbeddingSettings(SideModel, frozen=True):
    """The model that turns texts into vectors: one on a server, or the local one."""

    model: str = ""
    """Model name on that server. Empty: search works on words alone, unless `local` is set."""
    local: bool = False
    """Whether the model of the extra `embeddings` is used, on this machine. Then no text leaves
    it."""

    @property
    def is_on(self) -> bool:
        """Whether there is a search by meaning."""
        return self.local or bool(self.model)

    def faults(self, home: Path) -> Iterator[Fault]:
        if self.local and self.model:
            yield Fault(("local",), "and `model` exclude each other", "Leave out one of them.")


class VoiceProgram(SideModel, frozen=True):
    """Speech by a program on this machine, or by a server as `model` says."""

    command: tuple[Name, ...] = ()
    """A program and its arguments, as a list, which is run in the sandbox instead of asking a
    server."""
    read: tuple[AbsolutePath, ...] = ()
    """Files and folders that it may read, as absolute paths, beside those that `command` names and
    the system's own."""
    memory_megabytes: Annotated[int, Meta(ge=64)] = 4_096
    """Megabytes of memory that it may use."""
    sandbox: bool = True
    """Whether it is shut in. `false` lets it do all that you may do yourself, such as use a
    graphics card."""

    @property
    def is_on(self) -> bool:
        """Whether there is somebody to ask."""
        return bool(self.command or self.model)

    @property
    def paths(self) -> tuple[str, ...]:
        """All that the program needs of the disk, as far as the settings name it."""
        named = (argument for argument in self.command if argument.startswith("/"))
        return (*self.read, *named) if self.command else ()

    def faults(self, home: Path) -> Iterator[Fault]:
        if self.command and self.model:
            yield Fault(("command",), "and `model` exclude each other", "Leave out one of them.")
        yield from exposed_path_faults("read", self.read, home)
        if self.sandbox:
            yield from exposed_path_faults("command", self.command, home)
        if self.command and not self.sandbox:
            hint = "List what it needs in `read` instead."
            yield Fault(("sandbox",), "lets this program do all that you may do", hint, True)


class TranscriptionSettings(VoiceProgram, frozen=True):
    """What turns speech into text: a model on a server, or a program."""

    model: str = ""
    """Model name on that server, such as `whisper-1`. With neither this nor `command`, voice
    messages are kept as files and not understood."""
    command: tuple[Name, ...] = ()
    """A program and its arguments, as a list, that is run in the sandbox instead: `{wav}` is the
    recording as WAV, `{input}` as it came, and the text is what it prints, or writes to
    `{output}`."""
    language: str = ""
    """The language that is spoken, as two letters such as `de`; empty: the model finds out. A
    program is told in `command`."""
    timeout_seconds: Seconds = 60.0
    """Seconds that one transcription may take."""
    max_megabytes: Count = 20
    """Megabytes of the largest recording that is transcribed."""

    def faults(self, home: Path) -> Iterator[Fault]:
        yield from VoiceProgram.faults(self, home)
        named = "".join(self.command)
        if self.command and "{wav}" not in named and "{input}" not in named:
            hint = "Write `{wav}`, or `{input}` for a program that reads OGG/Opus."
            yield Fault(("command",), "names no recording", hint)
        if self.command and self.language:
            hint = "Say it in `command`, as the program wants it."
            yield Fault(("language",), "has no effect beside `command`", hint)


class SpeechSettings(VoiceProgram, frozen=True):
    """What reads replies aloud: a model on a server, or a program."""

    when: Literal["off", "spoken", "always"] = "spoken"
    """Which replies are voice messages as well: `spoken` those to voice messages, `always` all,
    `off` those that you ask for. `/voice` changes it for a conversation."""
    model: str = ""
    """Model name on that server, such as `tts-1`. With neither this nor `command`, nothing is read
    aloud."""
    voice: str = ""
    """The voice on that server, such as `alloy`. A program is told in `command`."""
    command: tuple[Name, ...] = ()
    """A program and its arguments, as a list, that is run in the sandbox instead: it reads the
    text, or the file `{input}`, and prints the sound, or writes it to `{output}`, as OGG/Opus or
    WAV."""
    timeout_seconds: Seconds = 60.0
    """Seconds that reading one reply may take."""
    max_characters: Count = 1_500
    """Characters of a reply that are read; what is longer is read up to the end of a sentence."""
    max_seconds: Count = 300
    """Seconds of the longest voice message that is sent."""
    max_megabytes: Count = 10
    """Megabytes of the largest one."""

    def faults(self, home: Path) -> Iterator[Fault]:
        yield from VoiceProgram.faults(self, home)
        if self.command and self.voice:
            hint = "Say it in `command`, as the program wants it."
            yield Fault(("voice",), "has no effect beside `command`", hint)


class PriceSettings(Checked, frozen=True):
    """What the model costs, for showing what was spent. 0: not known."""

    input: Price = 0.0
    """The price of a million prompt tokens, in your currency."""
    cached_input: Price = 0.0
    """The price of a million prompt tokens that the provider had cached."""
    output: Price = 0.0
    """The price of a million tokens of answers."""


class FallbackModel(Checked, frozen=True):
    """A model that is asked when those before it cannot answer."""

    name: Name
    """Name of the model on its server."""
    base_url: Url = ""
    """Its API; left out, that of the main model."""
    api_key: ApiKey = SecretStr("")
    """Its key; left out, that of the main model if the server is the same."""

    @classmethod
    def prepare(cls, given: object) -> object:
        """A name alone will do."""
        return {"name": given} if isinstance(given, str) else given


S = TypeVar("S", EmbeddingSettings, TranscriptionSettings, SpeechSettings, FallbackModel)


def completed(side: S, base_url: str, api_key: SecretStr) -> S:
    """A model's settings with what they lack taken from the main one; as they are while it is off.

    A key goes only to the server that it was given for.
    """
    if isinstance(side, SideModel) and not side.model:
        return side
    url, key = side.base_url or base_url, side.api_key
    if not key.get_secret_value() and url == base_url:
        key = api_key
    return replace(side, base_url=url, api_key=key)


class ModelSettings(Checked, frozen=True):
    """The language model."""

    provider: Literal["openai", "offline"] = "offline"
    """`openai` speaks to any server with an OpenAI-compatible API, `offline` is a small built-in
    model for trying nanobot out. Left out, it is `openai` as soon as a name, a key, another address
    or fallbacks are given."""
    name: str = ""
    """Model name on that server. Required by the official API; left out, another server is
    asked what it serves, and the first one is taken."""
    base_url: Url = OFFICIAL_API
    """Where the API is, up to and including `/v1`."""
    api_key: ApiKey = SecretStr("")
    """The key for that server, best written as `${OPENAI_API_KEY}`; servers other than the official
    one may need none."""
    context_window: Count = 128_000
    """Tokens that the model takes in all, its answer included."""
    max_completion_tokens: Count = 8_192
    """Tokens that one answer may have."""
    timeout_seconds: Seconds = 120.0
    """Seconds of silence from the server that end a call."""
    transport: Literal["http", "sdk"] = "http"
    """How requests are sent: `http` by nanobot's own client, `sdk` by the official SDK, which
    takes more time and memory."""
    retry_seconds: Duration = 60.0
    """Seconds for which one call is tried again within a turn; 0 for never."""
    fallbacks: tuple[FallbackModel, ...] = ()
    """Models to ask, in this order, when the main one cannot answer; each is a name or a mapping
    with `name`, `base_url` and `api_key`."""

    transcription: TranscriptionSettings = TranscriptionSettings()
    """What turns speech into text."""
    speech: SpeechSettings = SpeechSettings()
    """What reads replies aloud."""
    prices: PriceSettings = PriceSettings()
    """What the model costs, for showing what was spent."""

    @classmethod
    def prepare(cls, given: object) -> object:
        """The provider follows from the rest."""
        if not isinstance(given, dict) or "provider" in given:
            return given
        configured = any(given.get(key) for key in ("name", "api_key", "fallbacks"))
        elsewhere = given.get("base_url", OFFICIAL_API) != OFFICIAL_API
        return {**given, "provider": "openai"} if configured or elsewhere else given

    def completed(self) -> ModelSettings:
        """With what the models beside it take from the main one."""
        url, key = self.base_url, self.api_key
        return replace(
            self,
            fallbacks=tuple(completed(one, url, key) for one in self.fallbacks),
            transcription=completed(self.transcription, url, key),
            speech=completed(self.speech, url, key),
        )

    @property
    def prompt_tokens(self) -> int:
        """Tokens that a prompt may have: instructions, tools and conversation together."""
        return self.context_window - self.max_completion_tokens - self._reserve

    @property
    def _reserve(self) -> int:
        """An eighth of a small window: what is estimated there is little as well."""
        return min(SAFETY_TOKENS, self.context_window // 8)

    @property
    def is_small(self) -> bool:
        """Whether the window has no room for all tools beside a conversation."""
        return self.context_window < SMALL_WINDOW

    def faults(self, home: Path) -> Iterator[Fault]:
        if self.prompt_tokens < LEAST_PROMPT_TOKENS:
            yield self._no_room()
        if completed(self.transcription, self.base_url, self.api_key).lacks_key:
            yield missing_key("transcription", "api_key")
        if completed(self.speech, self.base_url, self.api_key).lacks_key:
            yield missing_key("speech", "api_key")
        if self.provider == "offline":
            return
        if not self.name and is_official(self.base_url):
            yield Fault(
                ("name",),
                "is required by the official OpenAI API",
                "Write the model's name, or `provider: offline` to try nanobot without a model.",
            )
        if needs_key(self.base_url, self.api_key):
            yield missing_key("api_key")
        for index, fallback in enumerate(self.fallbacks):
            other = completed(fallback, self.base_url, self.api_key)
            if other.base_url != self.base_url and needs_key(other.base_url, other.api_key):
                yield missing_key("fallbacks", index, "api_key")

    def _no_room(self) -> Fault:
        least = self.context_window - self.prompt_tokens + LEAST_PROMPT_TOKENS
        return Fault(
            ("context_window",),
            f"leaves {max(0, self.prompt_tokens):,} tokens for the prompt; "
            f"it needs {LEAST_PROMPT_TOKENS:,}",
            f"Set it to {least:,} or more, or `max_completion_tokens` to less.",
        )
