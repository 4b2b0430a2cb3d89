"""The fault campaign with a WhatsApp Cloud API that delivers messages and answers with an error.

Meta is a `FakeGraphAPI` in its own process, which is never killed. It delivers the messages to four
people, and answers with a status of 500 or above, a redirect, or an unreadable body. Then it
recovers, and one of the people presses the button under the notice twice. The gateway is killed
with SIGKILL at the Nth write, fsync, rename and send, and at random moments. The Graph API accepts
no idempotency key, so a message that may have arrived can be seen twice. A third copy appears only
on request, answers come in order, and a notice names each message that may be missing.

    python -m bench.crash_cloud              every N, and 300 random moments (hours)
    python -m bench.crash_cloud --every 20   a sample (some minutes)
    python -m bench.crash_cloud --short      a handful
"""

from __future__ import annotations

import json
import random
import socket
import sys
from pathlib import Path

from bench.cloud_side import CloudPlatform
from bench.common import load_once
from bench.faults import Campaign, Plans, every_call, run
from bench.scripted import UntilOver, let_end
from bench.telegram_talk import HastyClock, Model
from bench.unconfirmed import SPEED, confirm_nothing, faults_of_copies
from bench.wire import Platform
from nanobot.app.gateway import Gateway
from nanobot.config.load import load_settings

_PEOPLE = [f"1555020000{n}" for n in range(4)]
_PUBLIC = "https://bot.example.org/whatsapp"
_REST = {
    "agent": {"shutdown_grace_seconds": 1},
    "limits": {"messages_per_minute": 0},
    "memory": {"window": 1_000_000},
}


class Unconfirmed:
    """The scenario of this campaign."""

    def furnish(self, home: Path) -> Platform:
        """Return the platform. Its answers cause one repeated part in each chat even without a
        kill."""
        load_once("nanobot_whatsapp.cloud.transport", "markdown_it")
        platform = CloudPlatform(lambda people: confirm_nothing(people, _PEOPLE))
        platform.breaks = 2
        section = {**json.loads(platform.address), "enabled": True, "webhook_url": _PUBLIC}
        config = {
            "owner": {"whatsapp": [_PEOPLE[0]]},
            "http": {"port": platform.port},
            "channels": {"whatsapp": {**section, "allow_from": _PEOPLE}},
            **_REST,
        }
        (home / "config.yaml").write_text(json.dumps(config))
        return platform

    def gateway(self, home: Path, link: socket.socket, platform: Platform) -> Gateway:
        """Return a gateway with the real adapter."""
        assert isinstance(platform, CloudPlatform)
        channel = UntilOver(link, platform)
        gateway = Gateway(
            load_settings(home, {}),
            clock=HastyClock(SPEED),
            provider=Model(),
            channels=(channel,),
            chores=False,
        )
        return let_end(gateway, channel)

    def faults(self, home: Path, platform: Platform) -> list[str]:
        """Check the number of copies."""
        assert isinstance(platform, CloudPlatform)
        state = platform.state()
        return [*faults_of_copies(state["texts"], _PEOPLE), *state["violations"]]


def plans(campaign: Campaign, step: int, rng: random.Random) -> Plans:
    """Yield a run without a kill, every call in every mode, and random moments."""
    moments = max(300 // step, 10) if step else 1
    return {
        "with nothing killed": campaign.run_unharmed,
        **(every_call(campaign, step, rng) if step else {}),
        "at random moments": lambda: campaign.at_random(moments, rng, 4.0 if step else 1.5),
    }


if __name__ == "__main__":
    sys.exit(run("bench.crash_cloud", __doc__, Unconfirmed(), plans))
