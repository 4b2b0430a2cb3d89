"""A model server with a small window, like Ollama's default: a conversation still works."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from nanobot.app.gateway import Gateway
from nanobot.providers.offline.model import OfflineModel
from nanobot.providers.port import CallOptions, Prompt, Provider, Reply, TextSink, estimate_tokens
from nanobot.testing import ScriptedModel, calls, says
from nanobot.testing.channel import FakeChannel
from tests.support import running

WINDOW, ANSWER = 4_096, 1_024


def running_small(
    home: Path, model: Provider, channel: FakeChannel, learner: Provider | None = None
) -> AbstractAsyncContextManager[Gateway]:
    """Return a gateway with the settings that `onboard` writes for such a server."""
    return running(
        home,
        model,
        channel,
        learner=learner,
        NANOBOT_MODEL__CONTEXT_WINDOW=str(WINDOW),
        NANOBOT_MODEL__MAX_COMPLETION_TOKENS=str(ANSWER),
    )


class Condensing:
    """Consolidates conversations, and counts the requests."""

    def __init__(self) -> None:
        self.asked = 0
        self._model = OfflineModel()

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        self.asked += 1
        return await self._model.complete(prompt, options, on_text)

    async def close(self) -> None:
        await self._model.close()


def size(prompt: Prompt) -> int:
    """Count the tokens of a prompt with its tools."""
    texts = "\n".join(message.text for message in prompt.messages)
    return estimate_tokens(texts) + prompt.tools.tokens


async def test_a_conversation_of_many_turns_fits_and_is_not_put_away_each_time(
    tmp_path: Path,
) -> None:
    channel, learner = FakeChannel(), Condensing()
    words = "Some forty words of an ordinary answer to an ordinary question. " * 4
    model = ScriptedModel(
        calls("note", text="my cat is called Tom"), says("Noted."), author=lambda _: says(words)
    )
    async with running_small(tmp_path, model, channel, learner):
        await channel.ask("my cat is called Tom, remember that")
        for number in range(30):
            await channel.ask(f"question {number}: what do you think of it, in a few words?")
    assert max(map(size, model.prompts)) <= WINDOW - ANSWER
    assert 0 < learner.asked <= 7
    assert "Tom" in model.prompts[-1].messages[0].text
    assert "question 28" in "".join(message.text for message in model.prompts[-1].messages)


async def test_only_the_most_useful_tools_are_offered(tmp_path: Path) -> None:
    channel, model = FakeChannel(), ScriptedModel(says("hi"))
    async with running_small(tmp_path, model, channel):
        await channel.ask("hello")
    offered = {spec.name for spec in model.prompts[0].tools.specs}
    assert offered == {"note", "search_memory", "read_file", "cron"}


async def test_a_search_of_memory_takes_less_than_a_quarter_of_the_window(tmp_path: Path) -> None:
    channel = FakeChannel()
    words = "some forty words about the boat in an ordinary message of an ordinary chat " * 6
    talk = [says(f"{words} {number}") for number in range(12)]
    model = ScriptedModel(*talk, calls("search_memory", query="boat"), says("In Faro."))
    async with running_small(tmp_path, model, channel):
        for number in range(12):
            await channel.ask(f"{words} {number}")
        await channel.ask("/new")
        await channel.ask("where is the boat?")
    found = next(message.text for message in model.prompts[-1].messages if message.role == "tool")
    assert "some forty words about the boat" in found
    assert len(found) <= WINDOW // 3
    assert estimate_tokens(found) < WINDOW // 4
