"""Conversion of single items of the other program."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from nanobot.config.load import load_settings
from nanobot.config.values import plain_values
from nanobot.cron.job import decode_jobs
from nanobot.importing.foreign import Fields, Secrets, id_of, key_of, people_of
from nanobot.importing.importer import prepare
from nanobot.importing.sessions import Conversation, Head, head_of
from nanobot.importing.settings import NoServer, server_for
from nanobot.messages import Message
from nanobot.session.records import Metadata, decode
from nanobot.testing import FakeClock
from tests.importing.conftest import NOW, copy_home, do


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("telegram:15551234", "telegram:15551234"),
        ("telegram:-10015550000:topic:7", "telegram:-10015550000:7"),
        ("whatsapp:15551234@s.whatsapp.net", "whatsapp:15551234"),
        ("whatsapp:15551234:3@s.whatsapp.net", "whatsapp:15551234"),
        ("whatsapp:888@lid", "whatsapp:888@lid"),
        ("whatsapp:1203@g.us", "whatsapp:1203@g.us"),
        ("cli:direct", "cli:direct"),
        ("slack:C1:thread", "slack:C1:thread"),
        ("api:kitchen:plans", "programs:kitchen:plans"),
        ("heartbeat", ""),
        ("cron:4affa97d", ""),
        ("dream:20260528-100000", ""),
    ],
)
def test_a_conversation_keeps_its_chat(theirs: str, ours: str) -> None:
    assert key_of(theirs) == ours


def test_ids_are_taken_and_names_that_can_change_hands_are_not() -> None:
    assert id_of("telegram", "15551234|ada") == "15551234"
    assert id_of("telegram", "ada") == ""
    assert id_of("whatsapp", "+15551234") == "15551234"
    assert id_of("discord", "anything") == "anything"


def test_the_owner_is_the_only_person_let_in_or_whom_somebody_named() -> None:
    def letting(*entries: str) -> Fields:
        return Fields({"channels": {"telegram": {"allowFrom": list(entries)}}})

    one, two, all_of_them = letting("1"), letting("1", "2"), letting("*")
    paired = Fields({"approved": {"telegram": ["2"]}})
    assert people_of(one, Fields({}), ()).owners == {"telegram": ("1",)}
    assert people_of(one, paired, ()).owners == {}
    assert people_of(two, Fields({}), ()).owners == {}
    assert people_of(all_of_them, Fields({}), ()).owners == {}
    assert people_of(letting("1", "ada"), Fields({}), ()).owners == {}  # ada may be another person
    assert people_of(letting("-100123"), Fields({}), ()).owners == {}  # a group is no person
    named = people_of(two, Fields({}), ("telegram:2",))
    assert named.owners == {"telegram": ("2",)}
    assert named.allowed == {"telegram": ("1", "2")}


def test_whose_a_channel_is_is_not_guessed_where_somebody_else_could_talk_on_it() -> None:
    def mine(config: dict[str, object], *chosen: str) -> set[str]:
        return {*people_of(Fields(config), Fields({}), chosen).mine} - {"cli", "sdk"}

    discord = {"enabled": True, "allowFrom": ["1"]}
    assert mine({"channels": {"discord": discord}}) == {"discord", "api", "websocket", "unified"}
    others: dict[str, object] = {"enabled": True, "allowFrom": []}  # it may let in by other lists
    everybody: dict[str, object] = {"channels": {"slack": others, "discord": discord}}
    everybody["api"] = {"host": "0.0.0.0"}
    assert mine(everybody) == {"discord", "websocket"}


@pytest.mark.parametrize(
    ("model", "provider", "expected"),
    [
        ("gpt-5", "openai", ("gpt-5", "https://api.openai.com/v1")),
        ("anthropic/claude-opus-4-5", "auto", ("anthropic/claude-opus-4-5", "openrouter")),
        ("deepseek/deepseek-chat", "auto", ("deepseek-chat", "https://api.deepseek.com")),
        ("llama3.2", "ollama", ("llama3.2", "http://10.0.0.2:11434/v1")),
        ("mine", "my-proxy", ("mine", "http://127.0.0.1:9/v1")),
        ("x", "azure_openai", ("x", "")),
    ],
)
def test_the_server_is_found_as_the_other_program_finds_it(
    model: str, provider: str, expected: tuple[str, str]
) -> None:
    providers = {
        "openai": {"apiKey": "" if provider == "auto" else "k1"},
        "openrouter": {"apiKey": "k2"},
        "deepseek": {"apiKey": "k3"},
        "ollama": {"apiBase": "http://10.0.0.2:11434/v1/"},
        "myProxy": {"apiBase": "http://127.0.0.1:9/v1"},
    }
    if not expected[1]:
        with pytest.raises(NoServer, match="is not supported"):
            server_for(model, provider, Fields(providers))
        return
    name, url, *_ = server_for(model, provider, Fields(providers))
    assert name == expected[0]
    assert expected[1] in url


def test_a_secret_is_referred_to_and_a_reference_stays_one() -> None:
    secrets = Secrets()
    assert secrets.put("a-key", "s3cret") == "${IMPORTED_A_KEY}"
    assert secrets.put("other", "s3cret") == "${IMPORTED_A_KEY}"
    assert secrets.put("a key", "another") == "${IMPORTED_A_KEY__1}"
    assert secrets.put("x", "Bearer ${TOKEN}") == "Bearer ${TOKEN}"
    assert secrets.awaited == ["TOKEN"]
    assert secrets.as_text().splitlines()[-2:] == [
        "IMPORTED_A_KEY=s3cret", "IMPORTED_A_KEY__1=another",
    ]  # fmt: skip


@pytest.mark.parametrize("end", ["\n", "\r", "\x85", "\u2028", "\x0c", "\x1b", "\ud800"])
def test_no_secret_says_more_than_itself_and_none_is_dropped_silently(end: str) -> None:
    secrets = Secrets()
    assert secrets.put("x", f"key{end}NANOBOT_TOOLS__EXEC__SANDBOX=none") == ""
    assert (secrets.as_text(), secrets.unfit) == ("", ["IMPORTED_X"])


@pytest.mark.parametrize("key", ["programs:default", "sdk:default"])
def test_what_programs_sent_there_is_untrusted_here_too(key: str) -> None:
    said = [{"role": "user", "content": "Remember 4711."}, {"role": "assistant", "content": "Yes."}]
    conversation = Conversation(key, Head(), {})
    lines = conversation.lines(json.dumps(one).encode() + b"\n" for one in said)
    messages = [one for line in lines if isinstance(one := decode(line), Message)]
    assert [message.origin for message in messages] == ["api:import", "api:import"]


def test_what_is_consolidated_stays_so_though_lines_are_left_out_before_it() -> None:
    metadata = {"_type": "metadata", "key": "cli:direct", "last_consolidated": 4}
    said = [{"role": "user", "content": f"word {n}"} for n in range(1, 6)]
    said.insert(1, {"role": "system", "content": "not a message here"})
    lines = [json.dumps(line).encode() + b"\n" for line in (metadata, *said)]
    head = head_of(lines)
    made = [decode(line) for line in Conversation("cli:direct", head, {}).lines(lines)]
    assert [one.content for one in made if isinstance(one, Message)] == [
        f"word {n}" for n in range(1, 6)
    ]
    last = made[-1]
    assert isinstance(last, Metadata)
    assert last.last_consolidated == 3  # the fourth of theirs is our third


@pytest.mark.parametrize("consolidated", [2, 99])
def test_the_summary_of_what_is_consolidated_is_kept_though_messages_of_it_are_lost(
    consolidated: int,
) -> None:
    head = Head("cli:direct", consolidated=consolidated, summary="They like tea.")
    said = [{"role": "user", "content": f"word {n}"} for n in (1, 2)]
    lines = [json.dumps(line).encode() + b"\n" for line in said]
    made = [decode(line) for line in Conversation("cli:direct", head, {}).lines(lines)]
    kept = [one for one in made if isinstance(one, Message)]
    assert [one.content[-14:] for one in kept] == ["word 1", "word 2", "They like tea."]
    last = made[-1]
    assert isinstance(last, Metadata)
    assert last.last_consolidated == 2


def test_jobs_that_cannot_be_are_named_with_the_reason(tmp_path: Path) -> None:
    def entry(name: str, **schedule: object) -> dict[str, object]:
        return {"id": name, "name": name, "schedule": schedule, "payload": {"message": "do it"}}

    past = round((NOW - timedelta(days=1)).timestamp() * 1_000)
    jobs = [
        entry("fine", kind="cron", expr="0 7 * * *"),
        entry("fine", kind="cron", expr="0 8 * * *"),
        entry("past", kind="at", atMs=past),
        entry("too often", kind="every", everyMs=5_000),
        entry("nonsense", kind="cron", expr="every day"),
        entry("elsewhere", kind="cron", expr="0 8 * * *", tz="Mars/Base"),
        {"id": "dream", "payload": {"kind": "system_event"}},
        "not an object",
    ]
    source = copy_home("014", tmp_path / "old", config=False)
    (source / "cron" / "jobs.json").write_text(json.dumps({"jobs": jobs}))
    report = do(source, tmp_path / "new")
    (taken,) = decode_jobs((tmp_path / "new" / "state" / "jobs.json").read_bytes()).values()
    assert taken.name == "fine"
    for name in ("past", "too often", "nonsense", "elsewhere", "dream", "#7"):
        assert any(f"The job “{name}” was not imported" in text for text in report.changes)


@pytest.mark.parametrize("version", ["014", "035"])
def test_a_heartbeat_file_without_tasks_stays_there(version: str, tmp_path: Path) -> None:
    source = copy_home(version, tmp_path / "old", config=False)
    file, taken = source / "workspace" / "HEARTBEAT.md", Path("workspace", "HEARTBEAT.md")
    do(source, tmp_path / "with")
    file.write_text(file.read_text().replace("- Check whether the tomatoes need water", ""))
    do(source, tmp_path / "without")
    assert (tmp_path / "with" / taken).exists()
    assert not (tmp_path / "without" / taken).exists()


def test_servers_that_nothing_here_can_speak_to_are_something_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = copy_home("014", tmp_path / "old")
    server = {"tools": {"mcpServers": {"notes": {"command": "notes"}}}}
    (source / "config.json").write_text(json.dumps(server))

    def todo() -> str:
        plan = prepare(source, tmp_path / "new", None, (), FakeClock(NOW))
        return "\n".join(plan.report.todo)

    monkeypatch.setitem(sys.modules, "mcp", None)
    assert "MCP servers require the extra mcp" in todo()
    monkeypatch.delitem(sys.modules, "mcp")
    assert "MCP servers require the extra mcp" not in todo()


def test_what_goes_into_requests_comes_along_with_its_secrets_apart(tmp_path: Path) -> None:
    source = copy_home("014", tmp_path / "old")
    provider = {
        "apiKey": "k",
        "apiBase": "http://127.0.0.1:9/v1",
        "extraHeaders": {"X-Key": "canary-7f3a91"},
        "extraBody": {"top_k": 20, "nested": {"on": True}},
    }
    defaults = {"model": "m", "provider": "custom", "reasoningEffort": "low"}
    config = {"agents": {"defaults": defaults}, "providers": {"custom": provider}}
    (source / "config.json").write_text(json.dumps(config))
    do(source, tmp_path / "new")
    assert "canary" not in (tmp_path / "new" / "config.yaml").read_text()
    model = load_settings(tmp_path / "new", {}).model
    assert (model.name, model.reasoning_effort) == ("m", "low")
    assert model.extra_body == {"top_k": 20, "nested": {"on": True}}
    assert plain_values(model.headers) == {"X-Key": "canary-7f3a91"}
