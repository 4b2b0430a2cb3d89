"""The slash commands, through a whole gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path

from nanobot.bus.events import EXPIRED_BUTTON, Media
from nanobot.cli.offline import operate_with as operate
from nanobot.clock import SystemClock
from nanobot.config.load import load_settings
from nanobot.errors import ProviderRejected
from nanobot.messages import Message
from nanobot.session.manager import SessionManager
from nanobot.testing import ScriptedModel, calls, fails, says
from nanobot.testing.channel import FakeChannel
from tests.doubles.openai.server import FakeOpenAI
from tests.hidden import find_hidden
from tests.support import read_stored, running, window


async def test_help_lists_every_command(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(), channel):
        text = await channel.ask("/help")
    listed = {line.split()[0] for line in text.splitlines() if line.startswith("/")}
    assert listed == {
        "/help", "/new", "/stop", "/status", "/history", "/undo", "/retry", "/edit", "/model",
        "/think",
        "/memory", "/note", "/forget", "/compact", "/discard", "/continue", "/usage",
        "/dream", "/dream_log", "/dream_restore", "/pair", "/skills", "/cron", "/remind", "/send",
        "/resend",
        "/approve", "/deny", "/approvals", "/secret", "/title", "/restart", "/run",
    }  # fmt: skip
    assert "/history [n] — Show the latest messages" in text


async def test_help_offers_nobody_what_only_the_owner_may_do(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(), channel, NANOBOT_OWNER__FAKE='["person-1"]'):
        mine, theirs = await channel.ask("/help", "1"), await channel.ask("/help", "2")
    assert set(mine.splitlines()) - set(theirs.splitlines()) == {
        "/model [name] — Show or switch this conversation's model",
        "/think none | low | medium | high | default — Show or set the thinking effort",
        "/restart — Restart nanobot",
        "/pair [list | CODE | revoke ID] — Give or revoke access",
        "/skills [NAME] — List the skills",
        "/approve [code] [today | always] — Approve a tool call",
        "/approvals [revoke ID] — List pending questions and standing approvals",
        "/deny [code] — Deny a tool call",
        "/run COMMAND — Run a shell command in the sandbox",
        "/send CHAT TEXT — Send a message to another chat",
        "/secret move | keep — Move keys that you typed here to secrets.env",
    }


async def test_the_status_does_not_count_the_command_that_asks_for_it(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(), channel):
        status = await channel.ask("/status")
        assert "pending messages: 0," in status
        assert ", up 0 s, model " in status


async def test_an_unknown_command_gets_a_suggestion_and_never_reaches_the_model(
    tmp_path: Path,
) -> None:
    channel, model = FakeChannel(), ScriptedModel()
    async with running(tmp_path, model, channel):
        assert await channel.ask("/hepl") == "There is no command /hepl. Did you mean /help?"
        assert (
            await channel.ask("/qqqqqq")
            == "There is no command /qqqqqq. To list all commands, send /help."
        )
    assert model.prompts == []


async def test_what_a_command_quotes_hides_nothing(tmp_path: Path) -> None:
    memory = tmp_path / "workspace" / "memory" / "MEMORY.md"
    memory.parent.mkdir(parents=True)
    memory.write_text("# Memory\n\n- likes tea\u202e\u200b\x07\x08\x1b[2J here\n")
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(), channel):
        shown = [await channel.ask(f"/memory {what}") for what in ("", "search tea", "why tea")]
    assert all("likes tea here" in text for text in shown)
    assert not find_hidden("".join(shown))


async def test_a_button_that_is_over_is_answered_and_never_reaches_the_model(
    tmp_path: Path,
) -> None:
    channel, model = FakeChannel(), ScriptedModel()
    async with running(tmp_path, model, channel):
        answer = await channel.ask(EXPIRED_BUTTON)
        assert answer == "This button is no longer valid. Nothing was done."
    assert model.prompts == []


async def test_a_command_leaves_no_message_in_the_conversation(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(says("hi")), channel):
        await channel.ask("hello")
        await channel.ask("/status")
        await channel.ask("/history")
    assert len(read_stored(tmp_path)) == 2


async def test_a_broken_command_becomes_an_apology_and_keeps_nothing_it_staged(
    tmp_path: Path,
) -> None:
    channel = FakeChannel()
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "undo").write_text("a file where a folder should be")
    async with running(tmp_path, ScriptedModel(says("hi"), says("again")), channel):
        await channel.ask("hello")
        assert "Not a directory" in await channel.ask("/undo")
        assert await channel.ask("still there?") == "again"
    assert [text for _, text in await window(tmp_path)] == ["hello", "hi", "still there?", "again"]


async def test_new_empties_the_prompt_and_keeps_the_file(tmp_path: Path) -> None:
    channel = FakeChannel()
    model = ScriptedModel(says("hi"), says("who are you?"))
    async with running(tmp_path, model, channel):
        await channel.ask("hello")
        assert await channel.ask("/new") == "New conversation started."
        await channel.ask("do you know me?")
    assert [message.role for message in model.prompts[1].messages] == ["system", "user"]
    assert len(read_stored(tmp_path)) == 4
    assert await window(tmp_path) == [("user", "do you know me?"), ("assistant", "who are you?")]


async def test_history_shows_the_latest_messages(tmp_path: Path) -> None:
    channel = FakeChannel()
    model = ScriptedModel(says("one"), calls("list_dir"), says("x" * 500))
    async with running(tmp_path, model, channel):
        assert await channel.ask("/history") == "This conversation is empty."
        await channel.ask("first")
        await channel.ask("second\nline")
        shown = (await channel.ask("/history")).splitlines()
        assert [line.partition("] ")[2] for line in shown] == [
            "you: first",
            "nanobot: one",
            "you: second line",
            f"nanobot: {'x' * 399}…",
        ]
        assert (await channel.ask("/history 1")).endswith("…")
        for wrong in ("0", "-1", "101", "many", "²"):
            assert "from 1 to 100" in await channel.ask(f"/history {wrong}")


async def test_undo_restores_files_and_takes_the_turn_out_of_the_conversation(
    tmp_path: Path,
) -> None:
    channel = FakeChannel()
    poem = tmp_path / "workspace" / "poem.txt"
    model = ScriptedModel(
        calls("write_file", path="poem.txt", content="one\n"),
        says("written"),
        calls("edit_file", path="poem.txt", old_text="one", new_text="two"),
        says("changed"),
        says("hello"),
    )
    async with running(tmp_path, model, channel):
        await channel.ask("write")
        await channel.ask("change it")
        assert await channel.ask("/undo") == (
            "Undid the last turn (“change it”).\n- poem.txt: restored"
        )
        assert poem.read_text() == "one\n"
        assert await channel.ask("/undo") == ("Undid the last turn (“write”).\n- poem.txt: removed")
        assert not poem.exists()
        assert await channel.ask("/undo") == "There is nothing to undo in this conversation."
        await channel.ask("hi")
    assert [message.role for message in model.prompts[-1].messages] == ["system", "user"]
    assert len(read_stored(tmp_path)) == 10, "the file keeps what was taken back"


async def test_undo_leaves_alone_what_someone_changed_since(tmp_path: Path) -> None:
    channel = FakeChannel()
    poem = tmp_path / "workspace" / "poem.txt"
    model = ScriptedModel(calls("write_file", path="poem.txt", content="one\n"), says("written"))
    async with running(tmp_path, model, channel):
        await channel.ask("write")
        poem.write_text("mine\n")
        assert (await channel.ask("/undo")).endswith("- poem.txt: kept (it has changed since)")
    assert poem.read_text() == "mine\n"


async def test_retry_answers_again_for_the_retry_and_keeps_one_copy(tmp_path: Path) -> None:
    channel = FakeChannel()
    model = ScriptedModel(says("four"), says("five"))
    async with running(tmp_path, model, channel):
        assert await channel.ask("two and two?") == "four"
        assert await channel.ask("/retry") == "five"
    assert await window(tmp_path) == [("user", "two and two?"), ("assistant", "five")]
    assert [message.role for message in model.prompts[1].messages] == ["system", "user"]


async def test_what_was_only_noted_is_no_turn_to_take_back(tmp_path: Path) -> None:
    channel = FakeChannel()
    model = ScriptedModel(says("four"), says("five"), fails(ProviderRejected("no", status=401)))
    async with running(tmp_path, model, channel):
        await channel.say("a note", unanswered=True)
        assert "nothing to undo" in await channel.ask("/undo")
        question = await channel.say("two and two?")
        await channel.answer_to(question)
        await channel.say("two and three?", edits=question)
        assert await channel.ask("/retry") == "five"
        await channel.ask("and now?")  # fails
        await channel.say("another note", unanswered=True)
        assert await channel.ask("/undo") == (
            "Undid the last turn (“and now?”).\nNo files were changed."
        )
    assert [text for role, text in await window(tmp_path) if role == "assistant"] == ["five"]


async def test_a_message_of_notes_alone_is_answered_and_is_never_a_command(tmp_path: Path) -> None:
    channel, model = FakeChannel(), ScriptedModel(says("a nice place"))
    async with running(tmp_path, model, channel):
        event = await channel.say("", notes=("/stop",))
        assert await channel.answer_to(event) == "a nice place"
    assert (await window(tmp_path))[0] == ("user", "[/stop]")


async def test_retry_shows_the_model_the_same_picture_again(tmp_path: Path) -> None:
    channel = FakeChannel()
    channel.files["ref"] = b"\x89PNG\r\n\x1a\n"
    model = ScriptedModel(says("a cat"), says("a dog"))
    picture = Media("ref", "image", "image/png", "pet.png")
    async with running(tmp_path, model, channel):
        await channel.answer_to(await channel.say("what is this?", media=(picture,)))
        channel.files.clear()
        assert await channel.ask("/retry") == "a dog"
    first, second = (prompt.messages[1] for prompt in model.prompts)
    assert first.images == second.images != ()
    assert second.text.count("pet.png") == 1


async def test_a_failed_message_that_retry_ran_again_needs_no_decision_any_more(
    tmp_path: Path,
) -> None:
    channel = FakeChannel()
    model = ScriptedModel(fails(ProviderRejected("no", status=401)), says("better"))
    async with running(tmp_path, model, channel):
        await channel.ask("hello")
        assert await channel.ask("/retry") == "better"
    settings = load_settings(tmp_path, {})
    waiting = await asyncio.to_thread(operate, settings, "queue.list", {})
    assert waiting == {"inbox": [], "outbox": []}


async def test_retry_with_nothing_to_take_back_says_so(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(), channel):
        assert await channel.ask("/retry") == "There is nothing to undo in this conversation."


async def test_retry_takes_nothing_back_that_it_cannot_run_again(tmp_path: Path) -> None:
    manager = SessionManager(tmp_path / "sessions", SystemClock())
    session = await manager.get_or_create("fake:1")
    session.add_message(Message("user", "[nanobot: go on]", origin="tool:look", turn_id="t-1"))
    session.add_message(Message("assistant", "done", turn_id="t-1"))
    await manager.save(session)
    await manager.close()
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(), channel):
        assert "has been moved to memory" in await channel.ask("/retry")
    assert [text for _, text in await window(tmp_path)] == ["[nanobot: go on]", "done"]


async def test_model_switches_this_conversation_only_and_back(tmp_path: Path) -> None:
    channel = FakeChannel()
    model = ScriptedModel(author=lambda _: says("ok"))
    async with running(tmp_path, model, channel, NANOBOT_MODEL__PROVIDER="offline"):
        assert await channel.ask("/model") == (
            "This conversation uses offline. To switch, send /model NAME."
        )
        assert "now uses small-1." in await channel.ask("/model small-1")
        await channel.ask("hello")
        await channel.ask("hello", "2")
        assert "uses small-1" in await channel.ask("/model")
        assert await channel.ask("/model default") == "This conversation now uses offline."
        await channel.ask("hello")
    assert [options.model for options in model.options] == ["small-1", "", ""]


async def test_a_model_that_the_server_does_not_have_is_refused_with_near_names(
    tmp_path: Path,
) -> None:
    channel = FakeChannel()
    names = ("qwen3:8b", "qwen3:14b", "llama3.2:latest", "phi4", "mistral", "gemma3")
    async with (
        FakeOpenAI(models=names) as server,
        running(
            tmp_path,
            None,
            channel,
            NANOBOT_MODEL__BASE_URL=server.base_url,
            NANOBOT_MODEL__NAME="phi4",
        ),
    ):
        refused = await channel.ask("/model qwen:8b")
        assert "doesn't have qwen:8b. Did you mean qwen3:8b" in refused
        assert "still uses phi4" in refused
        assert " or " in await channel.ask("/model XXXXXXXXXX")
        assert "uses phi4" in await channel.ask("/model")
        assert await channel.ask("/model qwen3:14b") == "This conversation now uses qwen3:14b."
        assert "now uses llama3.2." in await channel.ask("/model llama3.2")


async def test_few_models_are_buttons_and_many_are_narrowed_by_a_part_of_their_names(
    tmp_path: Path,
) -> None:
    channel = FakeChannel()
    names = tuple(f"vendor-{number % 4}/model-{number}" for number in range(120))
    async with (
        FakeOpenAI(models=(*names, "phi4", "phi4-mini")) as server,
        running(
            tmp_path,
            None,
            channel,
            NANOBOT_MODEL__BASE_URL=server.base_url,
            NANOBOT_MODEL__NAME="phi4",
        ),
    ):
        many = await channel.ask("/model")
        assert many.startswith("This conversation uses phi4. To switch, send /model NAME.")
        assert "121 others are available, such as vendor-0/model-0" in many
        assert many.endswith("To narrow the list, send `/model` with part of a name.")
        assert "send more of the name." in await channel.ask("/model vendor")
        listed = await channel.ask("/model VENDOR-3")
        assert listed.startswith("There is no model named VENDOR-3. Available models:")
        assert listed.count("\n- vendor-3/") == 30
        await channel.ask("/model vendor-3/model-1")
        shown = [part for part in channel.sent if part.buttons][-1]
        assert [button.value for button in shown.buttons][:2] == [
            "/model vendor-3/model-103", "/model vendor-3/model-107",
        ]  # fmt: skip
        assert len(shown.buttons) == 8


async def test_a_model_can_be_chosen_where_its_server_gives_no_list(tmp_path: Path) -> None:
    channel = FakeChannel()
    nowhere = "http://127.0.0.1:9/v1"
    async with running(
        tmp_path, None, channel, NANOBOT_MODEL__BASE_URL=nowhere, NANOBOT_MODEL__NAME="phi4"
    ):
        switched = await channel.ask("/model small-1")
        assert switched.startswith("This conversation now uses small-1.")
        assert "not checked" in switched


async def test_the_chosen_model_survives_a_restart(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(), channel):
        await channel.ask("/model small-1")
    model = ScriptedModel(says("ok"))
    async with running(tmp_path, model, channel):
        await channel.ask("hello")
    assert model.options[0].model == "small-1"


async def test_status_works_while_a_turn_runs(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(), channel):
        assert "nanobot" in await channel.ask("/status")


async def test_dream_right_after_new_learns_from_what_was_ended(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with running(tmp_path, None, channel, configured_learner=True):
        await channel.ask("Tom's birthday is on 3 May.")
        await channel.say("/new")
        assert "Tom's birthday is on 3 May" in await channel.ask("/dream")
