"""A whole nanobot as a linked device: the real helper, and a WhatsApp that encrypts."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from nanobot.channel import LoginRequest
from nanobot.providers.port import Prompt, Reply
from nanobot.testing import ScriptedModel, calls, says
from nanobot_whatsapp.linked.login import SETTLING_SECONDS, login
from nanobot_whatsapp.settings import WhatsAppSettings
from tests.channels.telegram.support import WatchedClock
from tests.channels.telegram.whole import repeat
from tests.channels.whatsapp.linked.fake_whatsapp import (
    GROUP,
    LID,
    ME,
    ME_LID,
    NUMBER,
    PATIENCE,
    FakeWhatsApp,
)
from tests.channels.whatsapp.linked.qr_reader import scan
from tests.channels.whatsapp.linked.whole import (
    ANN,
    LOU_LID,
    LinkedHome,
    ports,
    what_is_missing,
)
from tests.doubles.graph.media import PNG
from tests.doubles.openai.server import FakeOpenAI
from tests.doubles.telegram.server import FakeTelegram
from tests.support import read_stored

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]

QUEUE = "queue"
"""Each message has its own answer."""
GROUPS = {"groups": "mention", "allow_groups": {GROUP: ["*"]}}
VOICE = b"OggS" + bytes(24) + b"OpusHead" + bytes(64)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def network(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FakeWhatsApp]:
    """WhatsApp, which takes most of a second to start."""
    if missing := what_is_missing(tmp_path_factory.mktemp("nothing")):
        pytest.skip(missing)
    node = shutil.which("node")
    assert node is not None
    fake = await FakeWhatsApp.start(Path(node))
    yield fake
    await fake.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def telegram() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def place(tmp_path: Path, network: FakeWhatsApp) -> LinkedHome:
    """A home without a linked device."""
    clock = WatchedClock()
    await network.begin(clock)
    node = shutil.which("node")
    assert node is not None
    return LinkedHome(
        tmp_path / "home", network, clock, network.node(tmp_path / "node", Path(node))
    )


class Terminal:
    """The printed output, for a phone to scan."""

    def __init__(self) -> None:
        self.printed: list[str] = []
        self._changed = asyncio.Event()

    def say(self, text: str) -> None:
        """Print."""
        self.printed.append(text)
        self._changed.set()

    async def code(self) -> str:
        """Return the content of the first QR code."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for text in self.printed:
                    if set(text) <= set(" █▀▄\n"):
                        return scan(text)
                self._changed.clear()
                await self._changed.wait()


async def test_the_code_on_the_terminal_links_it_and_what_was_written_while_it_was_off_is_answered(
    place: LinkedHome,
) -> None:
    terminal = Terminal()
    place.folder.mkdir(parents=True)
    options = WhatsAppSettings(node=str(place.node))
    request = LoginRequest(options, place.folder, terminal.say, place.clock, "")
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        group.create_task(login(request))
        await place.fake.do("scan", qr=await terminal.code())
        await place.clock.until_asked(SETTLING_SECONDS)
        await place.clock.advance(SETTLING_SECONDS)
    assert f"Linked: +{NUMBER}" in terminal.printed[-1]
    await place.fake.say("ann", "one")
    await place.clock.advance(3 * 3600.0)
    async with place.talking(ScriptedModel(author=repeat)):
        (answer,) = await place.fake.texts("ann", 1)
    assert answer == "re: [late: sent 3 h before this answer]\none"
    assert place.fake.violations == []


async def test_a_conversation(place: LinkedHome) -> None:
    """Everyone with access who addresses the bot is answered once, in their chat."""
    await place.link()
    fake, model = place.fake, ScriptedModel(author=repeat)
    people = {"allow_from": [LOU_LID], **GROUPS}
    before = ports(os.getpid())
    async with place.talking(model, settings=people, NANOBOT_AGENT__ON_BUSY=QUEUE):
        await fake.say("eve", "let me in")
        question = await fake.say("ann", "hello")
        await fake.say("ann", "hello", message=question)
        assert await fake.texts("ann", 1) == ["re: hello"]
        await fake.until("typing", on=True)
        await fake.until("read", id=question)
        assert ports(place.helper) == []
        assert ports(os.getpid()) == before

        await fake.say("bob", "nobody means you", group=GROUP)
        await fake.say("bob", f"@{NUMBER} one", group=GROUP, mentions=[ME])
        await fake.say("bob", f"@{LID} two", group=GROUP, mentions=[ME_LID])
        first, _ = await fake.receive("ann", 2, GROUP)
        quote = {"id": first["id"], "sender": ME_LID, "text": first["text"]}
        await fake.say("bob", "three", group=GROUP, quote=quote)
        *mentions, answer = await fake.texts("bob", 3, GROUP)
        assert mentions == ["re: [from Bob]\none", "re: [from Bob]\ntwo"]
        assert answer.endswith("three")

        await fake.say("lou", "who am I?", **{"as": "lid"}, hidden=True)
        await fake.texts("lou", 1)
        await fake.say("lou", "and now?")
        assert await fake.texts("lou", 2) == ["re: who am I?", "re: and now?"]
        await fake.say("ann", "bye")
        assert await fake.texts("ann", 2, ANN) == ["re: hello", "re: bye"]
    assert len(model.prompts) == 7
    assert fake.read_by("eve") == []
    assert len(read_stored(place.home, f"whatsapp:{LOU_LID}")) == 4
    assert fake.violations == []


async def test_one_talks_to_oneself_in_ones_own_chat_and_strangers_get_a_code_where_that_is_on(
    place: LinkedHome,
) -> None:
    await place.link()
    fake, model = place.fake, ScriptedModel(author=repeat)
    settings = {"self_chat": True, "pairing": "always"}
    async with place.talking(model, owner=NUMBER, settings=settings):
        await fake.say("me", "for Ann alone", to="ann")
        await fake.say("me", "remember the milk")
        assert await fake.texts("me", 1) == ["🤖 re: remember the milk"]
        await fake.say("me", "and bread")
        assert await fake.texts("me", 2) == ["🤖 re: remember the milk", "🤖 re: and bread"]
        await fake.say("eve", "let me in")
        (code,) = await fake.texts("eve", 1)
        assert "nanobot pair approve" in code
    assert len(model.prompts) == 2
    assert fake.read_by("ann") == []
    assert fake.violations == []


def look(prompt: Prompt) -> Reply:
    newest = prompt.messages[-1]
    if newest.images:
        return calls("message", text="yours", media=["notes.txt", "song.ogg"])
    return says("that was it") if newest.role == "tool" else repeat(prompt)


def as_file(kind: str, mime: str, content: bytes) -> dict[str, str]:
    return {"kind": kind, "mime": mime, "name": "", "base64": base64.b64encode(content).decode()}


async def test_files_go_both_ways(place: LinkedHome) -> None:
    await place.link()
    workspace = place.home / "workspace"
    workspace.mkdir()
    (workspace / "notes.txt").write_text("rain")
    (workspace / "song.ogg").write_bytes(VOICE)
    fake = place.fake
    async with (
        FakeOpenAI() as ears,
        place.talking(
            ScriptedModel(author=look),
            NANOBOT_MODEL__TRANSCRIPTION__MODEL="whisper-1",
            NANOBOT_MODEL__TRANSCRIPTION__BASE_URL=ears.base_url,
            NANOBOT_MODEL__TRANSCRIPTION__API_KEY="sk-test",
        ),
    ):
        await fake.say("ann", "what is this?", file=as_file("image", "image/png", PNG))
        sent = await fake.receive("ann", 3)
        spoken = as_file("voice", "audio/ogg; codecs=opus", b"buy milk")
        await fake.say("ann", "", file=spoken)
        *_, heard_of = await fake.texts("ann", 4)
    assert heard_of.startswith("re: buy milk\n[voice")
    files = {one["kind"]: one["media"] for one in sent if one["media"]}
    assert base64.b64decode(files["document"]["base64"]) == b"rain"
    assert files["document"]["name"] == "notes.txt"
    assert base64.b64decode(files["voice"]["base64"]) == VOICE
    assert files["voice"]["mime"] == "audio/ogg; codecs=opus"
    assert fake.violations == []


async def test_what_waited_is_answered_before_what_comes_now_and_a_second_program_is_told_of(
    place: LinkedHome,
) -> None:
    await place.link()
    fake = place.fake
    waited, came = [f"waited {n}" for n in range(9)], [f"came {n}" for n in range(3)]
    for text in waited:
        await fake.say("ann", text)
    async with place.talking(ScriptedModel(author=repeat), NANOBOT_AGENT__ON_BUSY=QUEUE):
        await fake.until("online")
        for text in came:
            await fake.say("ann", text)
        answers = [f"re: {text}" for text in (*waited, *came)]
        assert await fake.texts("ann", len(answers)) == answers
        await fake.do("stream_error", code=440)
        async with asyncio.timeout(PATIENCE):
            while "another program" not in (await place.state())[1]:
                await fake.do("violations")
    assert fake.violations == []


async def test_an_account_that_is_unlinked_ends_whatsapp_alone_and_the_owner_hears_of_it(
    place: LinkedHome, telegram: FakeTelegram
) -> None:
    await place.link()
    fake, model = place.fake, ScriptedModel(author=repeat)
    async with place.talking(model):
        await fake.say("ann", "one")
        await fake.texts("ann", 1)
        await fake.until("confirmed")
    (place.folder / "auth" / "creds.json").write_text('{"noiseKey":')
    (place.folder / "auth" / "keys.jsonl").write_bytes(b"\0\0\0\n" * 3)
    async with place.talking(model, telegram=telegram):
        telegram.say("hello")
        await telegram.receive(1)
        await fake.say("ann", "two")
        assert await fake.texts("ann", 2) == ["re: one", "re: two"]
        await fake.do("stream_error", code=401)
        _, told = await telegram.receive(2)
        assert "channel whatsapp is off" in told
        assert "nanobot channels login whatsapp" in told
        assert (await place.state())[0] == "off"
        telegram.say("three")
        assert (await telegram.receive(3))[2] == "re: three"
    assert fake.violations == []
