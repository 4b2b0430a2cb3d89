"""A home moves into a team and back, even if the process is killed on the way."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from nanobot.app import transfer
from nanobot.app.base import Stores
from nanobot.app.transfer import plan_init
from nanobot.bus.events import InboundMessage
from nanobot.bus.journal import Step, UsageTotals
from nanobot.cli.main import main
from nanobot.config.load import load_settings
from nanobot.errors import NanobotError
from nanobot.team.folder import word_file
from nanobot.testing.clock import DEFAULT_START, FakeClock
from tests.bus.support import end_turn, make_message, open_journal, reply
from tests.cli.support import Terminal
from tests.scratch import scratch
from tests.upkeep.homes import LINE, write

pytestmark = pytest.mark.team

_OWN = ("config.yaml", "logs", "locks", "team")
"""Files that stay with a home, or belong to the team."""
_CACHES = ("catalogue.db", "index", "gateway", "documents.json", "journal.db", "to-team", "from-")
_MOST = 400
_STRIDE = 1 if int(os.environ.get("NANOBOT_EXAMPLES", "0")) >= 1_000 else 10
"""Distance between the points at which it is killed."""


@pytest.fixture
def home(tmp_path: Path, team_database: str) -> Path:
    """A home with everything in it, and a team in its settings."""
    home = tmp_path / "home"
    write(
        home / "config.yaml",
        f'team:\n  database: "{team_database}"\n  shared: {tmp_path / "shared"}\n'
        "agent:\n  timezone: UTC\n"
        "owner:\n  fake: [boss]\n",
    )
    (tmp_path / "shared").mkdir()
    about = '{"_type": "metadata", "key": "fake:%s", "metadata": %s}\n'
    person = about % ("1", '{"sender": "person"}')
    write(home / "sessions/fake_1.jsonl", person + LINE % ("hello", 1))
    write(home / "sessions/fake_g.jsonl", about % ("g", '{"group": true}') + LINE % ("all", 1))
    write(home / "workspace/memory/MEMORY.md", "- likes tea\n")
    write(home / "workspace/tool.sh", "echo\n", 0o755)
    (home / "workspace/link").symlink_to("tool.sh")
    write(home / "media/photo.jpg", "picture")
    write(home / "spill/long.txt", "long")
    write(home / "state/undo/1.json", "{}")
    write(home / "state/questions/fake_1.json", "{}")
    write(home / "state/memory.git/HEAD", "ref: refs/heads/main\n")
    write(home / "state/versions/people/fake_1.git/HEAD", "ref: refs/heads/main\n")
    write(home / "state/channels/whatsapp/keys/creds.json", "{}")
    write(home / "state/channels/web/browsers.json", "{}")
    asyncio.run(_fill(home / "state/journal.db"))
    return home


async def _fill(path: Path) -> None:
    """Fill a journal with rows of every kind."""
    clock, boss = FakeClock(), InboundMessage("fake", "2", "boss", "mine", "b1", DEFAULT_START)
    async with open_journal(path, clock) as journal:
        first, waiting, mine = await journal.receive(
            "fake",
            [make_message("m1"), make_message("m2", "wait\0for \ud800 me"), boss],
            "cursor-7",
        )
        journal.claim("t1", "fake:1", [first.id], at_once=True)
        await journal.add_steps("t1", 1, [Step("call", '{"name": "exec"}')])
        journal.remember_prompt("p1", "You are …")
        report = '{"model": "m", "milliseconds": 5, "prompt_tokens": 7, "completion_tokens": 2}'
        await journal.complete(
            end_turn(
                "t1", first, lines='{"role": "user"}\n', report=report, outgoing=(reply("a", "b"),)
            )
        )
        journal.claim("t2", "fake:2", [mine.id], at_once=True)
        await journal.mark_model_asked("t2")
        await journal.add_steps("t2", 1, [Step("call", "{}")])
        for part in await journal.add_outgoing("t2", reply("c", call="say", chat_id="2")):
            await journal.give_up(part, "blocked")
        await journal.add_helper("h1", boss)
        journal.add_learning_usage(DEFAULT_START.date(), UsageTotals(1, 2, 3, 4, 5))
        journal.add_day_tokens(DEFAULT_START.date(), 99, warned=True)
        journal.state.write("jobs", b'{"jobs": []}', 0)
        journal.state.write("jobs", b'{"jobs": ["tea"]}', 1)
        journal.state.close()
        assert waiting


def _rows(path: Path) -> dict[str, list[Any]]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {name: sorted(db.execute(f"SELECT * FROM {name}"), key=repr) for (name,) in tables}


def _files(root: Path) -> dict[str, tuple[int, object]]:
    """Return the files in a folder that are not recreated automatically."""
    found: dict[str, tuple[int, object]] = {}
    for top, folders, names in os.walk(root):
        for name in [*names, *(one for one in folders if Path(top, one).is_symlink())]:
            path = Path(top, name)
            inner = path.relative_to(root)
            if inner.parts[0] in _OWN or name in _OWN or inner.match("state/team"):
                continue
            if inner.parts[0] == "state" and inner.parts[1].startswith(_CACHES):
                continue
            link = str(path.readlink()) if path.is_symlink() else path.read_bytes()
            found[str(inner)] = (path.lstat().st_mode, link)
    return found


def _everything(home: Path) -> tuple[dict[str, tuple[int, object]], dict[str, list[Any]]]:
    return _files(home), _rows(home / "state/journal.db")


def _nanobot(home: Path, *words: str) -> int:
    return main(["--home", str(home), *words])


Rows = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture
def rows(team_database: str) -> Iterator[Rows]:
    with psycopg.connect(team_database, autocommit=True) as db:
        yield lambda query: db.execute(query.encode()).fetchall()


def test_everything_is_where_a_team_looks_for_it(home: Path, rows: Rows) -> None:
    assert _nanobot(home, "team", "init", "--yes") == 0
    shared = home.parent / "shared"
    for name in ("workspace/memory/MEMORY.md", "state/channels/whatsapp/keys/creds.json"):
        assert (shared / name).is_file()
    assert (shared / "workspace/AGENTS.md").is_file(), "what a new workspace has"
    assert (home / "state/channels/web/browsers.json").is_file(), "each worker has its own"
    assert not (home / "sessions").exists()
    person, owner = "people/fake_person", "owner"
    assert rows("SELECT event_id, scope FROM inbox ORDER BY id") == [
        ("m1", person), ("m2", person), ("b1", owner)
    ]  # fmt: skip
    assert rows("SELECT id, scope, prompt FROM turn") == [("t1", person, 7), ("t2", owner, None)]
    assert rows("SELECT DISTINCT turn_id, scope FROM outbox ORDER BY 1") == [
        ("t1", person), ("t2", owner), ("undelivered-t2", owner)
    ]  # fmt: skip
    assert rows("SELECT scope FROM unfiled UNION ALL SELECT scope FROM helper") == [
        (person,), (owner,)
    ]  # fmt: skip
    assert rows("SELECT nextval('inbox_id_seq') > (SELECT max(id) FROM inbox)") == [(True,)]
    assert rows("SELECT name, revision FROM document") == [("jobs", 2)]


@pytest.mark.parametrize("elsewhere", [False, True], ids=["same disk", "another disk"])
def test_it_goes_there_and_comes_back_whenever_it_is_killed(home: Path, elsewhere: bool) -> None:
    """It is killed before each change of a name or a file, in both directions."""
    before, root = _everything(home), home.parent
    with contextlib.ExitStack() as stack:
        if elsewhere:
            other = stack.enter_context(scratch(on_disk=True))
            assert other.stat().st_dev != home.stat().st_dev or os.environ.get("TMPDIR")
            text = (home / "config.yaml").read_text()
            (home / "config.yaml").write_text(text.replace(str(root / "shared"), str(other)))
        nanobot = stack.enter_context(_killable(home))
        deaths = 0
        first = 1 + elsewhere * _STRIDE // 2  # other changes than on the same disk
        for number in range(first, _MOST, _STRIDE):
            codes = []
            for command in ("init", "leave"):
                codes.append(nanobot(f"{number} team {command} --yes"))
                if codes[-1] != 0:
                    assert nanobot(f"0 team {command} --yes") == 0, (number, command)
            assert set(codes) <= {0, -9}, (number, codes)
            files, stored = _everything(home)
            assert stored == before[1], number
            assert before[0].items() <= files.items(), number
            deaths += codes.count(-9)
            if codes == [0, 0]:
                break
        assert deaths > 20 // _STRIDE
        assert not list((home / "state").glob("*-team-*"))


def test_a_copy_is_on_the_disk_with_its_name_before_the_original_loses_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power loss takes the copy, and the next attempt removes the original."""
    write(tmp_path / "disk/media/photo.jpg", "picture")
    source, target, steps = tmp_path / "home/media", tmp_path / "shared/media", list[str]()
    source.parent.mkdir()
    source.symlink_to(tmp_path / "disk/media")  # it is copied, like one on another disk
    rename = Path.rename

    def note_rename(path: Path, to: Path) -> Path:
        steps.append(f"{path.name} to {to.name}")
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", note_rename)
    monkeypatch.setattr(transfer, "sync_folder", lambda path: steps.append(path.name))
    transfer.move(source, target)
    assert steps[:4] == [".media.copy", "shared", "media to .media.moved", "home"]
    assert (target / "photo.jpg").read_text() == "picture"


def test_a_home_that_is_half_in_a_team_starts_neither_alone_nor_as_a_worker(home: Path) -> None:
    with _killable(home) as nanobot:
        number = 1
        while not list((home / "state").glob("to-team-*")):
            assert nanobot(f"{number} team init --yes") == -9
            number += 1
    for _ in ("as a worker", "alone"):
        with pytest.raises(NanobotError, match="was interrupted"):
            Stores(load_settings(home), FakeClock())
        (home / "config.yaml").write_text("")


@contextlib.contextmanager
def _killable(home: Path) -> Iterator[Callable[[str], int]]:
    command = [sys.executable, "-m", "tests.team.transfer_killed", str(home), str(home.parent)]
    pipe, plain = subprocess.PIPE, {k: v for k, v in os.environ.items() if "NANOBOT" not in k}
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, env=plain) as process:
        to, answers = process.stdin, process.stdout
        assert to is not None
        assert answers is not None

        def run(line: str) -> int:
            print(line, file=to, flush=True)
            return int(answers.readline())

        yield run
        to.close()


def test_what_the_command_line_shows_of_a_team(
    home: Path, rows: Rows, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _nanobot(home, "team", "init", "--yes") == 0
    rows("INSERT INTO worker (name, version, until) VALUES ('w', '1', now() + '1 h') RETURNING 1")
    rows("INSERT INTO lease SELECT 'channel:telegram', max(id) FROM worker RETURNING 1")
    capsys.readouterr()
    assert _nanobot(home, "team", "status", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["workers"][0] | {"seen_seconds": 0, "since": ""} == {
        "id": 1, "name": "w", "version": "1", "alive": True, "scopes": 0, "single": ["telegram"],
        "seen_seconds": 0, "since": "",
    }  # fmt: skip
    assert [(one["scope"], one["waiting"]) for one in shown["queues"]] == [
        ("owner", 0), ("people/fake_person", 1),
    ]  # fmt: skip
    for command, words in (
        ("team status", "telegram"),
        ("status", "workers"),
        ("state show jobs", "tea"),
        ("sessions show fake:1", "hello"),
        ("queue list", "working"),
    ):
        assert _nanobot(home, *command.split()) == 0, command
        assert words in capsys.readouterr().out, command


@pytest.mark.parametrize("command", ["memory show", "skills list", "backup", "team leave --yes"])
def test_what_is_refused_in_a_team(
    home: Path, rows: Rows, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert _nanobot(home, "team", "init", "--yes") == 0
    rows("INSERT INTO worker (name, version, until) VALUES ('w', '1', now() + '1 h') RETURNING 1")
    assert _nanobot(home, *command.split()) == 1
    assert "team" in capsys.readouterr().err
    assert (home.parent / "shared/sessions/fake_1.jsonl").exists()


def test_tables_of_another_version_are_not_left(
    home: Path, rows: Rows, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _nanobot(home, "team", "init", "--yes") == 0
    rows("UPDATE schema_version SET version = version + 1 RETURNING 1")
    assert _nanobot(home, "team", "leave", "--yes") == 1
    assert "another version" in capsys.readouterr().err
    assert (home.parent / "shared/sessions/fake_1.jsonl").exists()


def test_a_further_home_brings_nothing_and_one_with_something_is_refused(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second, third = tmp_path / "second", tmp_path / "third"
    for other in (second, third):
        write(other / "config.yaml", (home / "config.yaml").read_text())
    write(third / "sessions/fake_2.jsonl", LINE % ("mine", 1))
    assert _nanobot(home, "team", "init", "--yes") == 0
    assert _nanobot(second, "team", "init", "--yes") == 0
    assert _nanobot(third, "team", "init", "--yes") == 1
    assert "sessions" in capsys.readouterr().err
    assert _nanobot(second, "team", "leave", "--yes") == 0
    assert (second / "sessions/fake_1.jsonl").exists()
    assert _nanobot(home, "team", "leave", "--yes") == 1, "there is nothing left"


def test_nothing_is_imported_into_the_home_of_a_worker(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _nanobot(home, "import", str(home), "--yes") == 1
    assert "worker" in capsys.readouterr().err


def test_two_homes_do_not_get_into_one_team_at_once(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An interrupted one keeps its place, and the other gets an error."""
    other = tmp_path / "other"
    write(other / "config.yaml", (home / "config.yaml").read_text())
    with _killable(home) as nanobot:
        number = 1
        while not (tmp_path / "shared/state/team").exists():
            assert nanobot(f"{number} team init --yes") == -9
            number += 1
        assert _nanobot(other, "team", "init", "--yes") == 1
        assert "belong to different teams" in capsys.readouterr().err
        assert nanobot("0 team init --yes") == 0
    assert _nanobot(other, "team", "init", "--yes") == 0


def test_nothing_begins_where_another_home_began_since_it_was_asked(home: Path) -> None:
    before, settings = _everything(home), load_settings(home)
    (_, make_tables), (_, begin), *_ = plan_init(settings).steps
    write(word_file(settings.data_folder), "heron")
    make_tables()
    with pytest.raises(NanobotError, match="belong to different teams"):
        begin()
    assert word_file(settings.data_folder).read_text() == "heron"
    assert _everything(home) == before
    assert not list((home / "state").glob("to-team-*")), "it starts alone"


def test_links_are_something_as_well(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = home.parent / "shared/workspace"
    theirs.mkdir()
    (theirs / "photos").symlink_to(home.parent)
    assert _nanobot(home, "team", "init", "--yes") == 1
    assert "is not empty" in capsys.readouterr().err


@pytest.mark.parametrize("answer", ["n\n", "y\n"])
def test_it_says_what_it_will_do_and_asks(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str,
) -> None:
    assert _nanobot(home, "team", "init") == 2, "nobody can be asked"
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    before = _everything(home)
    assert _nanobot(home, "team", "init") == (0 if answer == "y\n" else 1)
    assert "move sessions" in capsys.readouterr().out.partition("Continue?")[0]
    if answer == "n\n":
        assert _everything(home) == before


def test_it_looks_at_folder_and_database_before_it_asks(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home.parent / "shared").rmdir()
    assert _nanobot(home, "team", "init") == 1
    assert "there is no folder" in capsys.readouterr().err
