"""The workers of the campaign: processes that are restarted whenever they end, as by a service
manager, and a load balancer in front of them."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from aiohttp import web

from nanobot.team.membership import EXIT_CODE
from tests.doubles.server import Served
from tests.ports import free_port

_CONFIG = """
agent: {{shutdown_grace_seconds: {grace}, max_concurrent_turns: {turns}, timezone: UTC}}
model:
  name: fake-model
  base_url: {model}
  timeout_seconds: 20
  retry_seconds: 60
  context_window: 200000
memory: {{window: 1000000}}
dream: {{enabled: false}}
cron: {{enabled: false}}
heartbeat: {{every: "off"}}
limits: {{messages_per_minute: 0}}
retention: {{disk_reserve_megabytes: 0}}
http: {{port: {port}}}
{team}
owner: {{telegram: ["1"]}}
channels:
  telegram:
    enabled: {has_telegram}
    webhook_url: {balancer}/telegram
    allow_from: {telegram_people}
    groups: open
    allow_groups: {{"*": ["*"]}}
    token: "{token}"
    base_url: {telegram}
    reactions: false
  whatsapp:
    enabled: {has_whatsapp}
    webhook_url: https://127.0.0.1/whatsapp
    allow_from: {whatsapp_people}
    {whatsapp}
  api: {{enabled: {has_api}}}
"""
_WEBHOOK_SECONDS = 3.0
"""Timeout after which the balancer asks another worker, because the first may be stopped."""
_API_SECONDS = 75.0
_LOOK_SECONDS = 0.05
_AGAIN_SECONDS = 0.1
_MOST_FAILURES = 20
"""Permitted failed starts in a row, for example while the database is down."""


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """A worker's end, at a time of `time.monotonic`, by a signal (a negative code) or by itself."""

    name: str
    at: float
    code: int


@dataclass(eq=False)
class Worker:
    """One worker. `busy`: it is being killed, stopped or restarted. It is not started again while
    `may_run` is unset."""

    name: str
    home: Path
    port: int
    process: asyncio.subprocess.Process | None = None
    busy: bool = False
    may_run: asyncio.Event = field(default_factory=asyncio.Event)
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.may_run.set()
        self.log = self.home.parent / f"{self.name}.log"

    @property
    def is_ready(self) -> bool:
        """Check whether it serves requests."""
        lives = self.process is not None and self.process.returncode is None
        return lives and (self.home / "state" / "gateway.sock").exists()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it is alive."""
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)


class Workers:
    """All workers. `ends` has each end of a process, and `environ` additional variables for
    each."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.all = [Worker(name, folder / name, free_port()) for name in names]
        self.shared = folder / "shared"
        self.environ: Mapping[str, str] = {}
        self.ends: list[WorkerEnd] = []
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    def configure(self, databases: Sequence[str], **values: object) -> None:
        """Write the configuration of each worker. `databases` are by worker, empty for one without
        a team."""
        self.shared.mkdir(exist_ok=True, mode=0o700)
        for worker, database in zip(self.all, databases, strict=True):
            worker.home.mkdir(mode=0o700)
            path = worker.home / "config.yaml"
            path.touch(0o600)
            shown = {
                key: value if isinstance(value, str) else json.dumps(value)
                for key, value in values.items()
            }
            path.write_text(
                _CONFIG.format(
                    port=worker.port,
                    team=self._team(worker, database) if database else "",
                    **shown,
                )
            )

    def _team(self, worker: Worker, database: str) -> str:
        return f'team: {{database: "{database}", shared: {self.shared}, name: {worker.name}}}'

    async def start(self) -> None:
        """Start all workers that may run, and return when they serve."""
        self._tasks = [asyncio.create_task(self._keep_running(one)) for one in self.all]
        await self.until_ready(*(one for one in self.all if one.may_run.is_set()))

    async def until_ready(self, *workers: Worker) -> None:
        while not all(one.is_ready for one in workers):
            for task in self._tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(_LOOK_SECONDS)

    async def until_gone(self, worker: Worker) -> None:
        """Wait until the current process has ended."""
        process = worker.process
        if process is not None:
            await process.wait()

    def processor_seconds(self) -> float:
        """Return the processor time of the running processes."""
        ticks = 0
        for worker in self.all:
            if worker.process is not None:
                stat = Path(f"/proc/{worker.process.pid}/stat").read_text()
                ticks += sum(int(field) for field in stat.rpartition(")")[2].split()[11:13])
        return ticks / os.sysconf("SC_CLK_TCK")

    def tracebacks(self) -> list[str]:
        """Return the tracebacks in the logs: an outage causes none."""
        lines = (line for one in self.all for line in one.log.read_text().splitlines())
        found = {line[-300:] for line in lines if "Traceback" in line}
        return [f"a traceback in a log: …{line}" for line in sorted(found)]

    def idle(self, rng: random.Random) -> Worker | None:
        """Return a serving worker without a fault in progress, or None."""
        ready = [one for one in self.all if one.is_ready and not one.busy]
        return rng.choice(ready) if len(ready) > 1 or len(self.all) == 1 else None

    async def stop(self) -> None:
        """End all, politely at first."""
        self._stopping = True
        for worker in self.all:
            worker.may_run.set()
        for worker in self.all:
            worker.signal(signal.SIGCONT)
            worker.signal(signal.SIGTERM)
        await asyncio.wait(self._tasks, timeout=30.0)
        for worker in self.all:
            worker.signal(signal.SIGKILL)
        await asyncio.gather(*self._tasks)

    async def _keep_running(self, worker: Worker) -> None:
        environ = {name: value for name, value in os.environ.items() if "NANOBOT" not in name}
        environ |= {"NANOBOT_HOME": str(worker.home), **self.environ}
        failed = 0
        with worker.log.open("ab") as log:
            while await worker.may_run.wait() and not self._stopping:
                (worker.home / "state" / "gateway.sock").unlink(missing_ok=True)
                worker.process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "nanobot", "gateway"),
                    env=environ, stdout=asyncio.subprocess.DEVNULL, stderr=log,
                )  # fmt: skip
                code = await worker.process.wait()
                self.ends.append(WorkerEnd(worker.name, time.monotonic(), code))
                failed = 0 if code in (0, EXIT_CODE) or code < 0 else failed + 1
                if failed > _MOST_FAILURES:
                    raise RuntimeError(f"{worker.name} does not start: {worker.log.read_text()}")
                await asyncio.sleep(_AGAIN_SECONDS)


class Balancer:
    """A reverse proxy at `url`, which tries the workers in a random order."""

    def __init__(self, workers: Workers, rng: random.Random) -> None:
        self._workers, self._rng = workers, rng
        self._served: Served | None = None
        self._client: aiohttp.ClientSession | None = None
        self.url = ""

    async def __aenter__(self) -> Balancer:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._served = await Served.start(app, 0)
        self.url = f"http://127.0.0.1:{self._served.port}"
        self._client = aiohttp.ClientSession()  # no egress
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._client is not None
        assert self._served is not None
        await self._client.close()
        await self._served.stop()

    async def _handle(self, http: web.Request) -> web.Response:
        assert self._client is not None
        body = await http.read()
        hop = ("host", "content-length", "connection")
        headers = {name: value for name, value in http.headers.items() if name.lower() not in hop}
        is_api = http.path.startswith("/v1")
        timeout = aiohttp.ClientTimeout(
            total=_API_SECONDS if is_api else _WEBHOOK_SECONDS, sock_connect=1.0
        )
        workers = list(self._workers.all)
        self._rng.shuffle(workers)
        for worker in workers:
            url = f"http://127.0.0.1:{worker.port}{http.path_qs}"
            try:
                async with self._client.request(
                    http.method, url, data=body, headers=headers, timeout=timeout
                ) as answer:
                    read = await answer.read()
                    return web.Response(
                        status=answer.status, body=read, content_type=answer.content_type
                    )
            except aiohttp.ClientConnectorError:
                continue
            except (aiohttp.ClientError, TimeoutError):
                if is_api:
                    return web.Response(status=502)
        return web.Response(status=503)
