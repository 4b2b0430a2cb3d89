"""A whole nanobot on the Cloud API receives everything that Meta signed, once, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nanobot.providers.port import Prompt, Reply
from nanobot.session.records import Mark, decode
from nanobot.testing import ScriptedModel, calls, says
from tests.bus.support import rows
from tests.channels.telegram.support import WatchedClock
from tests.channels.telegram.whole import nanobot, repeat, status_of
from tests.channels.whatsapp.cloud.samples import call, message
from tests.channels.whatsapp.cloud.whole import channel_state, meta, talking, until
from tests.doubles.graph.media import PNG
from tests.doubles.graph.server import FakeGraphAPI
from tests.doubles.graph.webhook import SIGNATURE, as_meta_writes
from tests.faults.test_disk import journal_size, no_file_grows_beyond
from tests.support import Gate, read_stored

QUEUE = "queue"
GROUP = "Y2FwaV9ncm91cDoxMDAwMDAwMDAwMDAwMDA"


@pytest.fixture
def clock() -> WatchedClock:
    return WatchedClock()


@pytest.fixture
async def graph(clock: WatchedClock) -> AsyncIterator[FakeGraphAPI]:
    async with meta(clock) as server:
        yield server


async def test_only_who_knows_the_secrets_is_heard(
    tmp_path: Path, graph: FakeGraphAPI, clock: WatchedClock
) -> None:
    model = ScriptedModel(author=repeat)
    async with talking(tmp_path, graph, model, clock):
        url = graph.webhook.url
        question = graph.say("hello")
        assert await graph.receive(1) == ["re: hello"]
        await graph.wait_for(lambda: graph.reads)
        assert await graph.webhook.challenge(url, graph.verify_token) == 200
        assert await graph.webhook.challenge(url, "a-guess") == 403
        forged = as_meta_writes({"object": "whatsapp_business_account", "entry": []})
        signed = graph.webhook.sign(forged)
        for signature in ("", "sha256=", signed[:-1], signed.removeprefix("sha256=")):
            assert await graph.webhook.post(forged, {SIGNATURE: signature}) == 403
        assert await graph.webhook.post(forged + b" ", {SIGNATURE: signed}) == 403
        assert await graph.webhook.post(forged, {}) == 403
        assert await graph.webhook.post(forged, {SIGNATURE: signed}) == 200
    assert set(graph.reads) == {question}
    assert len(model.prompts) == 1
    assert graph.violations == []


async def test_a_bad_item_harms_none_that_came_with_it(
    tmp_path: Path, graph: FakeGraphAPI, clock: WatchedClock
) -> None:
    with graph.together():
        graph.say("one")
        graph.put(["no message"])
        graph.put({"type": "text", "text": 7})
        graph.unsupported("poll")
        graph.react("wamid.unknown")
        graph.say("two")
    graph.push("no change", {"field": "messages", "value": None}, {"field": 5})
    graph.webhook.add({"entry": {"not": "a list"}})
    graph.say("three")
    model = ScriptedModel(author=repeat)
    async with talking(tmp_path, graph, model, clock, NANOBOT_AGENT__ON_BUSY=QUEUE):
        texts = await graph.receive(5)
        await graph.wait_for(lambda: not graph.webhook.pending)
    assert [text for text in texts if "poll" not in text] == [
        "re: one",
        "re: [a message that nanobot could not read]",
        "re: two",
        "re: three",
    ]
    assert (tmp_path / "state" / "channels" / "whatsapp" / "quarantine.jsonl").exists()
    assert set(graph.webhook.answers) <= {0, 200, 503}


@pytest.mark.parametrize("starting", [False, True])
async def test_many_calls_at_once_are_all_taken_once(
    tmp_path: Path, graph: FakeGraphAPI, clock: WatchedClock, starting: bool
) -> None:
    known = graph.hang("number") if starting else None  # Meta has not returned the number yet
    graph.say("before")
    gate = Gate()
    gate.opened.set()
    model = ScriptedModel(author=lambda _: says("ok"), hold=gate)
    async with talking(tmp_path, graph, model, clock, settings={"allow_from": ["*"]}):
        await graph.receive(1)
        gate.opened.clear()  # only their acceptance matters
        bodies = [
            as_meta_writes(
                call(
                    message("text", {"body": "hi"}, id=f"wamid.n{n}", **{"from": f"1555{n:07}"}),
                    contacts=[],
                )
            )
            for n in range(60)
        ]
        posts = [graph.webhook.post(body, {SIGNATURE: graph.webhook.sign(body)}) for body in bodies]
        assert set(await asyncio.gather(*posts)) == {200}
        if known is not None:
            known.set()
        stored = rows(tmp_path / "state" / "journal.db", "SELECT event_id FROM inbox")
    assert sorted(row for row in stored if "wamid.n" in str(row)) == sorted(
        (f"wamid.n{n}",) for n in range(60)
    )


async def test_what_comes_twice_is_answered_once(
    tmp_path: Path, graph: FakeGraphAPI, clock: WatchedClock
) -> None:
    model = ScriptedModel(author=repeat)
    async with talking(tmp_path, graph, model, clock):
        graph.say("one")
        await graph.receive(1)
        await graph.wait_for(lambda: not graph.webhook.pending)
        graph.webhook.again()
        graph.say("two")
        assert await graph.receive(2) == ["re: one", "re: two"]
        await graph.wait_for(lambda: not graph.webhook.pending)
    graph.webhook.again()
    async with talking(tmp_path, graph, model, clock):
        graph.say("three")
        assert await graph.receive(3) == ["re: one", "re: two", "re: three"]


async def test_what_was_deleted_is_not_answered_and_a_reaction_is_known_to_the_next_answer(
    tmp_path: Path, graph: FakeGraphAPI, clock: WatchedClock
) -> None:
    gate = Gate()
    model = ScriptedModel(says("first"), says("third"), hold=gate)
    async with talking(tmp_path, graph, model, clock, NANOBOT_AGENT__ON_BUSY=QUEUE):
        graph.say("one")
        await gate.reached.wait()
        deleted = graph.say("two, with my PIN")
        graph.delete(deleted)
        graph.react(deleted)
        graph.react(deleted, "")
        graph.say("three")
        await graph.wait_for(lambda: not graph.webhook.pending)
        gate.opened.set()
        assert await graph.receive(2) == ["first", "third"]
    said = str(model.prompts[1].messages)
    assert "PIN" not in said
    assert "reaction to an earlier message: 👍" in said


async def test_a_reaction_marks_a_message_to_keep_and_starts_nothing(
    tmp_path: Path, graph: FakeGraphAPI, clock: WatchedClock
) -> None:
    model = ScriptedModel(author=repeat)
    async with talking(tmp_path, graph, model, clock):
        mine = graph.say("the key is under the mat")
        await graph.receive(1)
        other = graph.say("I bought bread")
        await graph.receive(2)
        for id, emoji in ((mine, "⭐"), (other, "📌"), (other, "")):
            graph.react(id, emoji)
        graph.say("bye")
        assert len(await graph.receive(3)) == 3
    (file,) = (tmp_path / "sessions").glob("whatsapp_*.jsonl")
    marks = [one for one in map(decode, file.read_bytes().splitlines()) if isinstance(one, Mark)]
    assert [(mark.seq, mark.kept) for mark in marks] == [(1, True), (3, True), (3, False)]
    assert len(model.prompts) == 3
    assert "⭐" not in str(model.prompts[2].messages)


async def test_what_the_disk_does_not_take_stays_at_meta_and_is_answered_later(
    tmp_path: Path, graph: FakeGraphAPI, clock: WatchedClock
) -> None:
    async with talking(tmp_path, graph, ScriptedModel(author=repeat), clock):
        graph.say("one")
        await graph.receive(1)
        await graph.wait_for(lambda: not graph.webhook.pending)
        await status_of(tmp_path)  # all journal writes are done
        with no_file_grows_beyond(journal_size(tmp_path)):
            graph.say("two")
            await graph.wait_for(lambda: graph.webhook.answers[-1] == 500)
        assert await graph.receive(2) == ["re: one", "re: two"]
        await graph.wait_for(lambda: not graph.webhook.pending)
        assert await channel_state(tmp_path) == ("running", "")


def look(prompt: Prompt) -> Reply:
    newest = prompt.messages[-1]
    if newest.images:
        return calls("message", text="yours", media=["notes.txt"])
    return says("re: a picture") if newest.role == "tool" else repeat(prompt)


async def test_files_go_both_ways(tmp_path: Path, graph: FakeGraphAPI, clock: WatchedClock) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "notes.txt").write_text("rain")
    async with talking(tmp_path, graph, ScriptedModel(author=look), clock):
        graph.fail("media", 131000)
        graph.image(PNG, caption="what is this?")
        await clock.until_asked(2.0)
        await clock.advance(2.0)
        assert await graph.receive(2) == ["yours", "re: a picture"]
    file = graph.messages()[0].file
    assert file is not None
    assert (file.name, file.mime, file.content) == ("notes.txt", "text/plain", b"rain")
    assert (len(graph.calls_of("media")), len(graph.calls_of("file"))) == (2, 1)
    assert graph.violations == []


async def test_who_hides_their_number_or_changes_it_goes_on_as_the_same_person(
    tmp_path: Path, graph: FakeGraphAPI, clock: WatchedClock
) -> None:
    hidden, old, new = graph.person("US.200"), graph.person("15550004444"), "15550005555"
    people = {"allow_from": [hidden, old]}
    async with talking(tmp_path, graph, ScriptedModel(author=repeat), clock, settings=people):
        graph.say("one", person=hidden)
        assert await graph.receive(1, hidden) == ["re: one"]
        graph.say("two", person=old)
        await graph.receive(1, old)
        graph.change_number(old, new)
        graph.say("three", person=new)
        assert await graph.receive(1, new) == ["re: three"]
    said = [message.content for message in read_stored(tmp_path, f"whatsapp:{old}")]
    assert said[::2] == ["two", "three"]
    assert graph.violations == []


async def test_what_comes_in_is_taken_while_meta_does_not_say_which_number_this_is(
    tmp_path: Path, graph: FakeGraphAPI, clock: WatchedClock
) -> None:
    asked = graph.hang("number")
    graph.say("one")
    async with talking(tmp_path, graph, ScriptedModel(author=repeat), clock):
        assert await graph.receive(1) == ["re: one"]
        asked.set()


async def test_what_meta_refuses_without_blaming_the_settings_is_asked_again(
    tmp_path: Path, graph: FakeGraphAPI, clock: WatchedClock
) -> None:
    graph.fail("number", 100, "not at the moment")
    async with talking(tmp_path, graph, ScriptedModel(author=repeat), clock):
        await until(tmp_path, "running", "not at the moment")
        await clock.until_asked(1.0)
        await clock.advance(1.0)
        await graph.wait_for(lambda: len(graph.calls_of("number")) == 2)
        await until(tmp_path, "running")


async def test_a_number_that_meta_does_not_know_turns_whatsapp_off(
    tmp_path: Path, graph: FakeGraphAPI, clock: WatchedClock
) -> None:
    wrong = {"phone_number_id": "100000000000002"}
    async with talking(tmp_path, graph, ScriptedModel(), clock, settings=wrong):
        await until(tmp_path, "off", "does not know this phone number")


async def test_a_token_that_is_refused_turns_whatsapp_off_alone_and_what_waited_shows_its_age(
    tmp_path: Path, graph: FakeGraphAPI, clock: WatchedClock
) -> None:
    good = {"access_token": graph.token}
    graph.revoke_token()
    async with talking(tmp_path, graph, ScriptedModel(author=repeat), clock, settings=good):
        await until(tmp_path, "off", "access token")
        graph.say("one")
        assert await nanobot(tmp_path, "agent", "-m", "hello") == "re: hello\n"
    assert graph.webhook.pending == 1
    await clock.advance(3 * 3600.0)
    async with talking(tmp_path, graph, ScriptedModel(author=repeat), clock):
        assert await graph.receive(1) == ["re: [late: sent 3 h before this answer]\none"]
