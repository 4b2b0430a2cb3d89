"""If the model rejects a picture, its conversation loses the pictures, never the answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot.bus.events import Media
from nanobot.errors import ProviderRejected
from nanobot.providers.port import Prompt, Reply
from nanobot.testing import ScriptedModel, fails, says
from nanobot.testing.channel import FakeChannel
from nanobot.testing.model import Author, Line
from tests.support import running

BROKEN = b"\x89PNG\r\n\x1a\n" + b"this is no picture at all, whatever it says"
PICTURE = Media("picture", "image", "image/png", "p.png")


def refuses(status: int) -> Author:
    """Return a model that rejects every request with an image."""

    def answer(prompt: Prompt) -> Line:
        if any(message.images for message in prompt.messages):
            return fails(ProviderRejected("invalid image", status=status))
        return says("seen nothing")

    return answer


@pytest.mark.parametrize("status", [400, 422])
async def test_a_refused_picture_is_left_out_and_the_chat_goes_on(
    tmp_path: Path, status: int
) -> None:
    channel = FakeChannel()
    channel.files["picture"] = BROKEN
    model = ScriptedModel(author=refuses(status))
    async with running(tmp_path, model, channel):
        event = await channel.say("look", media=(PICTURE,))
        text = await channel.answer_to(event)
        assert text.startswith("seen nothing")
        assert "rejected an image" in text
        assert await channel.ask("and now?") == "seen nothing"
    assert len(model.prompts) == 3


async def test_a_request_that_is_refused_without_pictures_still_ends_with_its_reason(
    tmp_path: Path,
) -> None:
    channel = FakeChannel()
    channel.files["picture"] = BROKEN

    def never(_: Prompt) -> Reply:
        raise ProviderRejected("no such model", status=404)

    async with running(tmp_path, ScriptedModel(author=never), channel):
        text = await channel.answer_to(await channel.say("look", media=(PICTURE,)))
    assert "no such model" in text


async def test_what_was_refused_for_another_reason_hides_no_picture(tmp_path: Path) -> None:
    channel = FakeChannel()
    channel.files["picture"] = BROKEN
    missing = fails(ProviderRejected("no such model", status=404))
    model = ScriptedModel(says("seen"), missing, missing, says("still seen"))
    async with running(tmp_path, model, channel):
        await channel.answer_to(await channel.say("look", media=(PICTURE,)))
        await channel.ask("again")
        assert await channel.ask("and now?") == "still seen"
    assert any(message.images for message in model.prompts[-1].messages)


async def test_another_model_sees_the_pictures_again(tmp_path: Path) -> None:
    channel = FakeChannel()
    channel.files["picture"] = BROKEN
    model = ScriptedModel(
        fails(ProviderRejected("cannot see", status=400)), says("blind"), says("it is a cat")
    )
    async with running(tmp_path, model, channel):
        await channel.answer_to(await channel.say("look", media=(PICTURE,)))
        await channel.ask("/model other")
        assert await channel.ask("and now?") == "it is a cat"
    assert any(message.images for message in model.prompts[-1].messages)
