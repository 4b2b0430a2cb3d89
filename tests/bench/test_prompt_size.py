"""The size of every request without messages."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiktoken

from bench.prompt_size import WANTED
from nanobot.providers.port import Prompt
from nanobot.testing import ScriptedModel, says
from nanobot.testing.channel import FakeChannel
from tests.encodings import ENCODINGS
from tests.support import running


@pytest.fixture
async def prompt(tmp_path: Path) -> Prompt:
    """The first prompt of a default install."""
    model, channel = ScriptedModel(says("Hello.")), FakeChannel()
    async with running(tmp_path, model, channel):
        await channel.ask("Hello!")
    return model.prompts[0]


async def test_by_estimate_system_prompt_and_tools_take_no_more_than_is_wanted(
    prompt: Prompt,
) -> None:
    assert len(prompt.tools.specs) > 10
    assert 0 < prompt.messages[0].tokens + prompt.tools.tokens <= WANTED


@pytest.mark.skipif(not ENCODINGS.is_dir(), reason=f"the encodings are not in {ENCODINGS}")
async def test_counted_exactly_they_take_no_more_either(
    prompt: Prompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(ENCODINGS))
    encoding = tiktoken.get_encoding("o200k_base")
    texts = (prompt.messages[0].text, prompt.tools.wire.decode())
    assert 0 < sum(len(encoding.encode(text)) for text in texts) <= WANTED
