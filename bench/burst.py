"""Measure how a burst of webhook calls is accepted.

200 signed WhatsApp messages, each from another person, are posted at once to a whole nanobot in
this process. A call is answered when its message is durable. Meta repeats a call after any status
but 200. The model does not answer during the burst, because turns have their own bench."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path

from loguru import logger

from bench.reporting import report
from nanobot.app.gateway import Gateway
from nanobot.clock import SystemClock
from nanobot.config.load import load_settings
from nanobot.providers.offline.model import OfflineModel
from nanobot.testing import ScriptedModel, says
from tests.doubles.graph.server import FakeGraphAPI
from tests.doubles.graph.webhook import SIGNATURE, as_meta_writes
from tests.ports import free_port

CALLS, ROUNDS = 200, 5


async def post_all(graph: FakeGraphAPI, bodies: list[bytes]) -> tuple[int, float]:
    """Return the number of calls without a 200, and the seconds until the last answer."""
    begun = time.perf_counter()
    posts = [graph.webhook.post(body, {SIGNATURE: graph.webhook.sign(body)}) for body in bodies]
    answers = await asyncio.gather(*posts)
    return sum(answer != 200 for answer in answers), time.perf_counter() - begun


def bodies_of(graph: FakeGraphAPI, number: int) -> list[bytes]:
    """Return the calls of one round."""
    metadata = {"phone_number_id": graph.settings()["phone_number_id"]}
    made = []
    for n in range(CALLS):
        text = {"type": "text", "text": {"body": "hi"}, "timestamp": "1777636800"}
        said = {**text, "from": f"1555{n:07}", "id": f"wamid.{number}.{n}"}
        value = {"metadata": metadata, "messages": [said]}
        entry = {"changes": [{"field": "messages", "value": value}]}
        made.append(as_meta_writes({"object": "whatsapp_business_account", "entry": [entry]}))
    return made


async def measure(home: Path) -> tuple[int, list[float]]:
    """Return the number of failed calls, and the seconds of each round."""
    port = free_port()
    never, ready = asyncio.Event(), asyncio.Event()
    async with FakeGraphAPI(clock=SystemClock()) as graph:
        section = {"enabled": True, **graph.settings(), "allow_from": ["*"]}
        section["webhook_url"] = "https://bot.example.org/whatsapp"
        config = {"http": {"port": port}, "channels": {"whatsapp": section}}
        (home / "config.yaml").write_text(json.dumps(config))
        (home / "config.yaml").chmod(0o600)
        model = ScriptedModel(author=lambda _: says("ok"), hold=never.wait)
        gateway = Gateway(load_settings(home, {}), provider=model, learner=OfflineModel())
        logger.remove()
        running = asyncio.create_task(gateway.run(on_ready=ready.set, signals=False))
        await ready.wait()
        graph.webhook.deliver_to(f"http://127.0.0.1:{port}/whatsapp")
        graph.say("that it listens")
        await graph.wait_for(lambda: graph.webhook.answers[-1:] == [200])
        rounds = [await post_all(graph, bodies_of(graph, number)) for number in range(ROUNDS)]
        gateway.request_stop()
        await running
    return sum(refused for refused, _ in rounds), [seconds for _, seconds in rounds]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        refused, seconds = asyncio.run(measure(Path(folder)))
    report(
        "burst",
        {
            f"of {CALLS * ROUNDS:,} calls in bursts of {CALLS}, not taken (target 0)": refused,
            f"the slowest burst of {CALLS} [s]": round(max(seconds), 2),
        },
    )


if __name__ == "__main__":
    main()
