"""The fault campaign for unattended work: jobs, subagents, approvals, commands.

A gateway, with a model over real HTTP, has a recurring job and a one-time job. In its first life it
asked the owner to approve a command and was killed while the question was pending. In the next it
asks again, schedules more jobs and starts a subagent. Time passes once to a due time, and once past
two of them. The gateway is killed with SIGKILL at the Nth write, fsync, rename and send (before it,
in the middle, after it), once more while it recovers, and at random moments. Then:

- each due time has one run (missed ones share one), is reported in the chat once, and is in the
  chat's conversation once,
- a subagent gave one report, or its interruption is reported once,
- the answer to a question of an earlier life did nothing,
- a command ran at most once, and exactly once unless its outcome is reported as unknown,
- no file was damaged, nothing is left over in the journal, and only messages in flight at a kill
  came twice.

    python -m bench.crash_routines              every N, and 300 random moments (an hour)
    python -m bench.crash_routines --every 20   a sample (minutes)
    python -m bench.crash_routines --short      two of them
"""

from __future__ import annotations

import asyncio
import copy
import os
import random
import re
import shutil
import socket
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from loguru import logger

from bench.common import load_once
from bench.faults import Campaign, Plans, every_call, run
from bench.injection import AFTER, TORN
from bench.routines_talk import (
    EFFECTS,
    NO_QUESTION,
    Chat,
    ChatClock,
    ModelServer,
    Prelude,
    Talk,
)
from bench.transcript import faults_of_transcript
from bench.wire import Platform
from nanobot.agent.notifier import GAVE_UP
from nanobot.app.gateway import Gateway
from nanobot.bus.journal import GIVE_UP_AFTER
from nanobot.bus.journal_file import SqliteState
from nanobot.config.load import load_settings
from nanobot.cron.job import JobStore
from nanobot.providers.offline.model import OfflineModel
from nanobot.session.records import key_of

_CONFIG = """
owner: {{wire: [someone]}}
model: {{base_url: "{url}", name: scripted}}
tools: {{exec: {{sandbox: none}}}}
heartbeat: {{every: off}}
dream: {{enabled: false}}
memory: {{window: 1000000}}
"""
_GIVEN_UP = GAVE_UP.format(GIVE_UP_AFTER)
_EVENTS = ("e0", "e1", "e2", "e3", "e4")
_CHAT = "wire:1"
_MODULES = ("aiohttp", "httpx2", "anyio._backends._asyncio", "dulwich.objects", "httpcore2")
_HANDFUL = ((330, TORN), (290, AFTER))
_NEVER = re.compile(r"(?!)")
_PERSONS = re.compile(r"\b([es]\d): ")


class Routines:
    """The scenario of this campaign."""

    def __init__(self) -> None:
        self._model: ModelServer | None = None
        self._chat, self._died = Chat(), 0.0

    def furnish(self, home: Path) -> Platform:
        """Create a home in which a process has died. The clock is set to that moment."""
        begun = home.with_name("begun")
        if self._model is None:
            self._model = ModelServer()
            load_once(*_MODULES)
            self._begin(begun, self._model.base_url)
        shutil.copytree(begun, home, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sock"))
        chat = copy.deepcopy(self._chat)
        chat.behind += time.time() - self._died
        return chat

    def gateway(self, home: Path, link: socket.socket, platform: Platform) -> Gateway:
        """Return a gateway with the configured model and a clock that jumps."""
        return _gateway(home, link, platform, Talk)

    def faults(self, home: Path, platform: Platform) -> list[str]:
        """Return the broken promises."""
        assert isinstance(platform, Chat)
        return [
            *_faults_of_answers(platform),
            *_faults_of_runs(home, platform),
            *_faults_of_effects(home, platform),
            *_faults_of_files(home),
            *_faults_of_journal(home, platform),
        ]

    def _begin(self, home: Path, model: str) -> None:
        """Run the first life."""
        chat = self._chat
        (home / "workspace").mkdir(parents=True)
        (home / "workspace" / EFFECTS).touch()
        (home / "config.yaml").write_text(_CONFIG.format(url=model))
        ours, theirs = socket.socketpair()
        child = os.fork()
        if child == 0:
            try:
                logger.remove()
                asyncio.run(_gateway(home, theirs, chat, Prelude).run(signals=False))
            finally:
                os._exit(1)
        theirs.close()
        with ours, ours.makefile() as lines:
            for line in lines:
                chat.hear(line)
        os.waitpid(child, 0)
        self._died = time.time()
        if not chat.seen:
            raise SystemExit("the first life did not come to its question")
        chat.life = 1
        chat.delivered = [(events, text) for events, text in chat.delivered if events]


def _gateway(home: Path, link: socket.socket, platform: Platform, kind: type[Talk]) -> Gateway:
    assert isinstance(platform, Chat)
    clock = ChatClock(platform)
    channel = kind(link, platform, clock)
    gateway = Gateway(
        load_settings(home, {}),
        clock=clock,
        learner=OfflineModel(),
        channels=(channel,),
        admit_everyone=True,
    )
    channel.gateway = gateway
    return gateway


def _faults_of_answers(chat: Chat) -> Iterator[str]:
    """Check that each message was answered once, and that questions of an earlier life did not
    count."""
    for event in _EVENTS:
        texts = {text for events, text in chat.delivered if event in events}
        if len(texts) != 1:
            yield f"{event} was answered {sorted(texts)}"
    given_up = any(_GIVEN_UP in text for _, text in chat.delivered)
    if given_up and chat.life <= GIVE_UP_AFTER:
        yield "something was given up too early"
    for code, life in chat.seen.items():
        answer, tried = chat.answer_to(code), chat.tried_in.get(code)
        if tried is not None and tried > life and not answer.startswith(NO_QUESTION):
            yield f"question {code} of life {life}, answered in {tried}: {answer!r}"


def _faults_of_runs(home: Path, chat: Chat) -> Iterator[str]:
    """Check that each due time has one run and one mention in the conversation, and check the
    subagent."""
    given_up = any(_GIVEN_UP in text for _, text in chat.delivered)
    runs = Counter((alarm.what, alarm.missed) for alarm in chat.alarms)
    wanted = {("the tick", 0): 1, ("the tick", 1): 1, ("the first alarm", 0): 1}
    if "scheduled" in chat.answer_to("e1"):
        wanted |= {("the second alarm", 0): 1}
    if runs != wanted and not given_up:
        yield f"the jobs ran {dict(runs)}: {sorted(alarm.text for alarm in chat.alarms)}"
    for due, count in Counter((alarm.what, alarm.due) for alarm in chat.alarms).items():
        if count > 1:
            yield f"{due} was run for {count} times"
    conversation = (home / "sessions" / "wire_1.jsonl").read_bytes().decode("unicode-escape")
    for alarm in chat.alarms:
        if (known := conversation.count(f'"content":"{alarm.text}"')) != 1:
            yield f"the conversation knows {known} times of {alarm.text!r}"
    reports = len(re.findall(r'"\[nanobot: the helper', conversation))
    if reports > 1 or (reports == 0 and "at work" in chat.answer_to("e2")):
        yield f"{reports} reports of the helper after {chat.answer_to('e2')!r}"


def _faults_of_effects(home: Path, chat: Chat) -> Iterator[str]:
    """Check that each command ran once, or that its outcome is reported as unknown."""
    lines = Counter((home / "workspace" / EFFECTS).read_text().splitlines())
    said = {alarm.due: alarm.how for alarm in chat.alarms if "tick" in alarm.what}
    for effect, how in {**said, "e0": chat.answer_to("e0")}.items():
        count = lines.pop(effect, 0)
        if count > 1 or (count == 0 and "done" in how):
            yield f"{effect} happened {count} times, and is called {how!r}"
        if "done" not in how and "unknown" not in how and _GIVEN_UP not in how:
            yield f"{effect} ended as {how!r}"
    if lines and not any(_GIVEN_UP in text for _, text in chat.delivered):
        yield f"nobody spoke of {dict(lines)}"


def _faults_of_files(home: Path) -> Iterator[str]:
    """Check that all files are readable and complete."""
    for path in sorted((home / "sessions").glob("*.jsonl")):
        key = key_of(path.stem)
        said = ("s1", *_EVENTS) if key == _CHAT else ()
        yield from faults_of_transcript(home, key, _PERSONS if said else _NEVER, said)
    with closing(SqliteState(home / "state")) as state:
        store = JobStore(state)
        jobs = tuple(store.load().values())
    if store.problem or list((home / "state").glob("jobs.json.*")):
        yield f"jobs.json: {store.problem}"
    if [(job.message, job.begun, len(job.runs)) for job in jobs] != [("the tick", None, 2)]:
        yield f"the jobs are {jobs}"


def _faults_of_journal(home: Path, chat: Chat) -> Iterator[str]:
    """Check that nothing is left over."""
    with closing(sqlite3.connect(home / "state" / "journal.db")) as db:
        open_rows = "SELECT event_id, state FROM inbox WHERE state IN ('received', 'working')"
        left = db.execute(open_rows).fetchall()
        left += db.execute("SELECT id, 'helper' FROM helper").fetchall()
        left += db.execute("SELECT id, state FROM outbox WHERE state != 'sent'").fetchall()
        failed = db.execute("SELECT event_id FROM inbox WHERE state = 'failed'").fetchall()
    if left:
        yield f"left over: {left}"
    if failed and not any(_GIVEN_UP in text for _, text in chat.delivered):
        yield f"failed: {failed}"


def plans(campaign: Campaign, step: int, rng: random.Random) -> Plans:
    """Yield every call in every mode, then two kills in a row, and random moments."""
    if not step:
        return {"at a handful of calls": lambda: campaign.one_after_another(*_HANDFUL)}
    return {
        "unharmed": campaign.run_unharmed,
        **every_call(campaign, step, rng),
        "at random moments": lambda: campaign.at_random(max(300 // step, 10), rng, 1.5),
    }


if __name__ == "__main__":
    sys.exit(run("bench.crash_routines", __doc__, Routines(), plans))
