"""Learning does not write facts back while they are being forgotten."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from nanobot.memory.dream import Dream, DreamLimits
from nanobot.memory.dream.state import DreamPlan, DreamState, Write
from nanobot.memory.erase import Eraser
from nanobot.memory.forget import Forgetter
from nanobot.memory.line_changes import Operation
from nanobot.testing import FakeClock, ScriptedModel
from tests.doubles.state import MemoryState
from tests.memory.homes import SCOPES, RealHome, living

SECRET = "the blue folder holds the spare key"
FILE = "memory/MEMORY.md"


def make_dream(home: RealHome, stored: MemoryState, *scopes: str) -> Dream:
    """Return a Dream that stopped before it wrote the secret in these scopes."""
    state = DreamState(stored)
    for scope in scopes:
        plan = DreamPlan((Write(FILE, (Operation("", f"- {SECRET}"),)),))
        state.put(scope, replace(state.of(scope), plan=plan))
    dream = Dream(
        provider=ScriptedModel(),
        memories=home.memories,
        clock=home.clock,
        read_messages=home.sessions.read_conversation,
        limits=DreamLimits(),
        state=stored,
    )
    assert all(dream.next_run(scope, lambda since: since, 9) for scope in scopes)  # it knows of it
    return dream


def make_forgetter(home: RealHome, dream: Dream) -> Forgetter:
    return Forgetter(
        home.memories,
        home.explainer,
        home.sessions,
        SCOPES,
        home.clock,
        pause_learning=dream.pause_for_forgetting,
    )


async def test_a_dream_cut_short_does_not_learn_what_was_forgotten_since(tmp_path: Path) -> None:
    async with living(tmp_path, FakeClock()) as home:
        await home.learn(f"- {SECRET}")
        stored = MemoryState()
        dream = make_dream(home, stored, "owner")
        forgetter = make_forgetter(home, dream)
        await forgetter.apply(await forgetter.plan(SECRET, "owner"))
        report = await dream.run("owner")
        assert (report.problem, report.learned) == ("", ())
        assert SECRET not in home.memory().store.read(FILE)


async def test_a_dream_cut_short_in_any_scope_does_not_write_back_what_was_erased(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, FakeClock()) as home:
        guest = "people/telegram_7"
        for scope in ("owner", guest):
            await home.learn(f"- {SECRET}", scope=scope)
        stored = MemoryState()
        dream = make_dream(home, stored, "owner", guest)
        eraser = Eraser(
            home.folder,
            home.folder / "workspace",
            sessions=home.sessions,
            journal=home.journal,
            memories=home.memories,
            forgetter=make_forgetter(home, dream),
            rebuild_index=home.index.rebuild,
        )
        report = await eraser.apply(SECRET)
        assert report.data["left"] == []
        for scope in ("owner", guest):
            assert not (await dream.run(scope)).learned
            assert SECRET not in home.memory(scope).store.read(FILE)
        assert SECRET not in stored.text("dream")
