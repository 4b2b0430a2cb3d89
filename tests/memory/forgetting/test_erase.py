"""After an erasure no byte of the home holds the text. The report lists all exceptions."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from dulwich.object_format import SHA1
from dulwich.pack import Pack

from nanobot.bus.events import InboundMessage
from nanobot.bus.journal import Completion, Step
from nanobot.errors import NanobotError
from nanobot.memory.forget import ForgottenFacts
from nanobot.memory.version import Change
from nanobot.messages import Message
from nanobot.security.paths import Root
from nanobot.testing import FakeClock
from nanobot.tools.files import UndoLog
from tests.files import read_file
from tests.memory.homes import GUEST, RealHome, living, retire

KEY = "telegram:1"
SECRET = "Zoë's walrus Qopuvi"
FORMS = [
    SECRET.encode(),
    SECRET.upper().encode(),
    SECRET.replace(" ", "\n").encode(),
    json.dumps(SECRET)[1:-1].encode(),
    b"Qopuvi",
    b"QOPUVI",
    b"qopuvi",
]
PNG = b"\x89PNG\r\n\x1a\n\0\0"


def unpack(path: Path) -> list[bytes]:
    with Pack(str(path.with_suffix("")), object_format=SHA1) as pack:
        return [item.as_raw_string() for item in pack.iterobjects()]


def places(folder: Path) -> list[str]:
    """Return the files that contain a form of the text. Git's objects are unpacked."""
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        data = read_file(path)
        if path.suffix == ".pack":
            data += b"".join(unpack(path))
        elif path.parent.parent.name == "objects" and data.startswith(b"x"):
            data += zlib.decompress(data)
        if any(form in data for form in FORMS):
            found.append(str(path.relative_to(folder)))
    return found


def start(folder: Path, last: int) -> subprocess.Popen[bytes]:
    """Start an erasure in a process that dies at that rename."""
    command = [sys.executable, "-m", "tests.memory.erase_killed", str(folder), SECRET, str(last)]
    return subprocess.Popen(command)


async def fill(home: RealHome) -> None:
    """Write the text to every place in which a home stores data."""
    text = f"I call it {SECRET}, remember"
    seqs = await home.say(KEY, text, "I like tea", turn="t0")
    session = await home.sessions.get_or_create(KEY)
    home.sessions.mark_consolidated(session, 2)
    await home.sessions.archive(session)
    await home.say(KEY, text)
    await home.say("telegram:7", text.replace(" ", "\n"))
    cursor = home.tell(KEY, seqs, f"They call it {SECRET}. They like tea.", f"It is {SECRET}")
    await home.learn(f"- It is {SECRET.upper()}", "- Likes tea", cursor=cursor)
    await home.learn(f"- Has {SECRET}, the dear", path="USER.md")
    await home.learn(f"- Walks {SECRET}", scope=GUEST)
    store = home.memory().store
    await retire(store, "memory/MEMORY.md", [f"- It is {SECRET.upper()}"], Change("dream"))
    await home.learn(f"- It still is {SECRET}")
    await store.append_today(f"feed {SECRET}")
    await in_files(home)
    await in_journal(home)
    await home.index.refresh()


async def in_files(home: RealHome) -> None:
    folder, workspace = home.folder, home.folder / "workspace"
    undo = UndoLog(folder / "state" / "undo", Root(workspace))
    undo.before_change("t1", "story.md", f"once {SECRET}".encode(), b"new")
    (workspace / "story.md").write_text(f"Once there was\nZoë's walrus\n   Qopuvi, {SECRET}.\n")
    (workspace / "memory" / "2025-12.md").write_text(
        f"# 2025-12\n\n- {SECRET} ate (12-03)\n- Tea\n"
    )
    (workspace / "memory" / "zoo.md").write_text(f"The zoo of Bergen has {SECRET} at the gate.\n")
    (workspace / "data.json").write_text(json.dumps({"list": [SECRET], "n": 1}, indent=2))
    (folder / "spill").mkdir()
    (folder / "spill" / "a.txt").write_text(SECRET)
    (folder / "logs" / "nanobot.log").write_text(f"12:00 said {SECRET!a}\n12:01 {SECRET}\n")
    (folder / "state" / "cli_history").write_text(f"# 2026\n+tell {SECRET}\n+/forget {SECRET}\n")
    (folder / "sessions" / "x.jsonl.corrupt-1").write_text(f'{{"content":"{SECRET}')
    (folder / "media" / "letter.txt").write_text(f"Dear {SECRET}")
    (folder / "media" / "photo.png").write_bytes(PNG + SECRET.encode())
    damaged = folder / "state" / "journal.db.damaged-20260302T090000"
    damaged.mkdir()
    (damaged / "journal.db-wal").write_bytes(SECRET.encode())
    (folder / "media" / "other.png").write_bytes(PNG)


async def in_journal(home: RealHome) -> None:
    def inbound(event: str, text: str) -> InboundMessage:
        return InboundMessage("telegram", "1", "1", text, event, home.clock.now())

    first, command = await home.journal.receive(
        "telegram", [inbound("m1", f"{SECRET} " * 200), inbound("m2", f"/forget --erase {SECRET}")]
    )
    home.journal.claim("t1", KEY, [first.id], at_once=True)
    await home.journal.add_steps("t1", 1, [Step("reply", json.dumps({"content": SECRET}))])
    home.journal.remember_prompt("p1", f"You know {SECRET}.")
    await home.journal.complete(Completion("t1", KEY, (first.id,), "done", report=SECRET))
    home.journal.claim("t2", KEY, [command.id], at_once=True)


async def test_no_paragraph_of_a_report_belongs_to_the_list_before_it(home: RealHome) -> None:
    await fill(home)
    shown = [await home.eraser.plan(SECRET), await home.eraser.apply(SECRET)]
    assert [re.findall(r"(?m)^- .*\n(?!- |\n)", one.text) for one in shown] == [[], []]


async def test_no_byte_of_the_home_holds_the_text(home: RealHome) -> None:
    await fill(home)
    assert len(places(home.folder)) > 20

    report = await home.eraser.apply(SECRET)

    assert places(home.folder) == []
    assert report.data["complete"]
    assert "None of them contains the text now" in report.text


async def test_versions_of_a_scope_whose_files_are_gone_are_erased_as_well(home: RealHome) -> None:
    await home.learn(f"- Walks {SECRET}", scope=GUEST)
    versions = home.memory(GUEST).versions
    shutil.rmtree(home.folder / "workspace" / GUEST)

    report = await home.eraser.apply(SECRET)

    assert places(home.folder) == []
    assert report.data["complete"]
    assert [version.author for version in versions.log()] == ["dream"]


async def test_all_else_stays_and_goes_on_and_versions_keep_their_numbers(home: RealHome) -> None:
    await fill(home)
    before = [(version.number, version.when) for version in home.versions.log()]
    await home.eraser.apply(SECRET)
    after = [(version.number, version.when) for version in home.versions.log()]
    assert after[-len(before) :] == before

    session = await home.sessions.get_or_create(KEY)
    shown = [m.content for m in session.messages if m.role == "user"]
    assert shown == ["I like tea", "I call it [erased], remember"]
    said = [m.content for m in home.sessions.read_messages(KEY) if m.role == "user"]
    assert said == ["I call it [erased], remember", "I like tea", "I call it [erased], remember"]
    assert home.memory().store.read("memory/MEMORY.md").count("Likes tea") == 1
    (entry,) = home.memory().history.entries()
    assert "They like tea." in entry.summary
    assert await home.finds("tea")
    assert await home.finds("zoo of Bergen") == ["The zoo of Bergen has [erased] at the gate."]
    assert (home.folder / "media" / "other.png").exists()
    assert not (home.folder / "media" / "photo.png").exists()
    assert not list((home.folder / "state").glob("journal.db.damaged-*/journal.db-wal"))
    story = (home.folder / "workspace" / "story.md").read_text()
    assert story == "Once there was\n[erased], [erased].\n"
    assert len((home.folder / "logs" / "nanobot.log").read_text().splitlines()) == 2
    assert await home.learn("- Likes coffee") > 0
    assert home.versions.record_hand_edits() == 0
    left = await home.journal.leftovers()
    assert [item.message.content for item in left.entries] == ["/forget --erase [erased]"]


async def test_the_rest_of_each_message_is_found_read_and_shown(home: RealHome) -> None:
    text = (
        f"the boiler room is on floor nine, its door opens with {SECRET}, ask Bernard for ladders"
    )
    seqs = await home.say(KEY, text, f"my boiler door has the code {SECRET}")
    cursor = home.tell(KEY, seqs, f"The boiler room is on floor nine and opens with {SECRET}.")
    await home.learn(f"- The boiler door opens with {SECRET}", cursor=cursor)

    await home.eraser.apply(SECRET)

    left = text.replace(SECRET, "[erased]")
    assert left in await home.finds("ladders from Bernard")
    around = await home.index.around(f"m:{KEY}:1", ("owner",))
    assert [one.text for one in around] == [
        left,
        "ok",
        "my boiler door has the code [erased]",
        "ok",
    ]
    session = await home.sessions.get_or_create(KEY)
    assert [one.content for one in session.messages] == [one.text for one in around]
    entry = home.memory().history.get(cursor)
    assert entry is not None
    assert entry.summary.endswith("The boiler room is on floor nine and opens with [erased].")


async def test_what_says_it_in_other_words_is_hidden_and_not_learned_again(home: RealHome) -> None:
    await home.say(KEY, "Qopuvi is what I call the walrus of Zoë", f"so {SECRET} it is")

    await home.eraser.apply(SECRET)

    session = await home.sessions.get_or_create(KEY)
    assert [one.content for one in session.messages] == ["ok", "so [erased] it is", "ok"]
    assert not await home.finds("walrus")
    assert ForgottenFacts(home.memory().root).hides_line(f"It is called {SECRET}")


async def test_the_plan_names_the_files_and_tells_nothing(home: RealHome) -> None:
    await fill(home)
    before = {path: path.read_bytes() for path in home.folder.rglob("*.md")}

    plan = await home.eraser.plan(SECRET)

    files = plan.data["files"]
    assert isinstance(files, list)
    assert len(files) > 20
    for one in files[:20]:
        assert f"- {one}\n" in plan.text
    assert "- and " in plan.text
    assert "backups" in plan.text
    assert "Qopuvi" not in plan.text
    assert "Qopuvi" not in json.dumps(dict(plan.data))
    assert {path: path.read_bytes() for path in home.folder.rglob("*.md")} == before


async def test_an_open_session_no_longer_shows_it(home: RealHome) -> None:
    await home.say(KEY, f"it is called {SECRET} and it likes to swim in the sea")
    session = await home.sessions.get_or_create(KEY)
    revision = session.revision
    await home.eraser.apply(SECRET)
    assert session.revision != revision
    assert "Qopuvi" not in str(session.messages)


async def test_what_it_does_not_change_is_named(home: RealHome) -> None:
    workspace = home.folder / "workspace"
    (home.folder / "config.yaml").write_text(f"name: {SECRET}\n")
    (workspace / "scan.bin").write_bytes(b"\0\1" + SECRET.encode())
    (workspace / "about Qopuvi").mkdir()
    (workspace / "about Qopuvi" / "empty.txt").write_text("x")

    report = await home.eraser.apply(SECRET)

    assert "config.yaml: your settings" in report.text
    assert "scan.bin: it is not a text file" in report.text
    assert not report.data["complete"]
    named = await home.eraser.plan("Qopuvi")
    assert "rename it" in named.text
    assert "Qopuvi" not in named.text
    assert (home.folder / "config.yaml").read_text() == f"name: {SECRET}\n"


async def test_broken_and_leftover_conversation_files_are_cleaned(home: RealHome) -> None:
    folder = home.folder / "sessions"
    line = json.dumps({"role": "user", "content": SECRET, "seq": 1}).encode()
    (folder / "telegram_5.jsonl").write_bytes(b'no line of a session: "' + SECRET.encode() + b'"\n')
    (folder / "archive" / "telegram_6").mkdir(parents=True)
    (folder / "archive" / "telegram_6" / "0001.jsonl").write_bytes(line + b"\n")
    (folder / ".telegram_7.jsonl.tmp").write_bytes(line)

    report = await home.eraser.apply(SECRET)

    assert report.data["complete"]
    assert places(home.folder) == []
    (message,) = home.sessions.read_messages("telegram:6")
    assert message.content == "[erased]"


async def test_a_short_text_does_not_cost_a_photo(home: RealHome) -> None:
    photo = home.folder / "media" / "other.png"
    photo.write_bytes(PNG + b"\xff Ann \xff")
    await home.say(KEY, "this is Ann speaking about the weather")
    await home.eraser.apply("Ann")
    assert photo.exists()


@pytest.mark.parametrize("text", ["", "ab", "  a ", "!!!!"])
async def test_a_text_too_short_is_refused(home: RealHome, text: str) -> None:
    with pytest.raises(NanobotError):
        await home.eraser.plan(text)


async def test_nothing_to_erase_says_so(home: RealHome) -> None:
    plan = await home.eraser.plan(SECRET)
    assert not plan.data["found"]
    assert "do not contain" in plan.text


async def test_killed_at_any_point_it_leaves_whole_files_and_can_be_finished(
    tmp_path: Path,
) -> None:
    made = tmp_path / "made"
    async with living(made, FakeClock()) as home:
        await fill(home)
    runs = {}
    for last in (7, 20):
        shutil.copytree(made, tmp_path / str(last))
        runs[last] = start(tmp_path / str(last), last)
    codes = {last: run.wait() for last, run in runs.items()}
    assert set(codes.values()) == {9}
    for last in runs:
        async with living(tmp_path / str(last), FakeClock()) as home:
            said = [m.content for m in home.sessions.read_messages(KEY) if m.role == "user"]
            assert [text.replace(SECRET, "[erased]") for text in said] == [
                "I call it [erased], remember", "I like tea", "I call it [erased], remember",
            ]  # fmt: skip
            report = await home.eraser.apply(SECRET)
            assert report.data["complete"]
        assert places(tmp_path / str(last)) == []


async def test_whose_conversation_it_is_stays_and_is_said_to_stay(home: RealHome) -> None:
    number = "4915112345678"
    session = await home.sessions.get_or_create(f"whatsapp:{number}")
    session.set_metadata(sender=number, chat=number)
    session.add_message(Message("user", f"call me at {number}"))
    await home.sessions.save(session)
    await home.index.refresh()

    report = await home.eraser.apply(number)

    metadata = home.sessions.metadata_of(f"whatsapp:{number}")
    assert (metadata["sender"], metadata["chat"]) == (number, number)
    (message,) = home.sessions.read_messages(f"whatsapp:{number}")
    assert message.content == "call me at [erased]"
    assert (
        "- sessions/whatsapp_[erased].jsonl: its name contains the text: rename it" in report.text
    )
    assert number not in report.text
    assert not report.data["complete"]
