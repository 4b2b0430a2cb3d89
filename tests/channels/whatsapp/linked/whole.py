"""Shared parts of the tests of a whole nanobot with a linked device."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nanobot.app.gateway import Gateway
from nanobot.providers.port import Provider
from nanobot_whatsapp.linked.install import NodeMissing, bridge_program, find_node
from tests.channels.telegram.support import WatchedClock
from tests.channels.telegram.whole import status_of
from tests.channels.whatsapp.linked.fake_whatsapp import FakeWhatsApp
from tests.doubles.telegram.server import FakeTelegram
from tests.support import start_configured

ANN, LOU_LID = "15557770000", "666000111@lid"
"""Ann is the owner by default."""

_LISTENS, _TAKES_DATAGRAMS = "0A", "07"


def what_is_missing(folder: Path) -> str:
    """Return the reason why this machine cannot run a helper, or an empty text. `folder` is
    empty."""
    try:
        find_node("node")
    except NodeMissing as error:
        return str(error)
    if bridge_program(folder) is None:
        return "the WhatsApp helper is not built: make bridge"
    return ""


@dataclass(frozen=True, slots=True)
class LinkedHome:
    """A home with WhatsApp and a clock."""

    home: Path
    fake: FakeWhatsApp
    clock: WatchedClock
    node: Path

    @property
    def folder(self) -> Path:
        """The adapter's folder."""
        return self.home / "state" / "channels" / "whatsapp"

    async def link(self) -> None:
        """Link the home's device."""
        self.folder.mkdir(parents=True)
        await self.fake.do("seed", folder=str(self.folder))

    @contextlib.asynccontextmanager
    async def talking(
        self,
        model: Provider | None,
        *,
        owner: str = ANN,
        settings: Mapping[str, object] | None = None,
        telegram: FakeTelegram | None = None,
        **environ: str,
    ) -> AsyncIterator[Gateway]:
        """Run a normally configured gateway. `settings` are further keys of `channels.whatsapp`.
        `telegram` is added for the owner 7."""
        channels = {"whatsapp": {"enabled": True, "node": str(self.node), **(settings or {})}}
        if telegram is not None:
            channels["telegram"] = {
                "enabled": True, "token": telegram.token, "base_url": telegram.base_url
            }  # fmt: skip
        config = {"owner": {"whatsapp": [owner], "telegram": ["7"]}, "channels": channels}
        async with start_configured(
            self.home, config, model, clock=self.clock, tools=(), hooks=(), **environ
        ) as gateway:
            yield gateway

    async def state(self) -> tuple[str, str]:
        """Return the state of WhatsApp in `nanobot status`."""
        channels = (await status_of(self.home))["channels"]
        (state,) = [one for one in channels if one["name"] == "whatsapp"]
        return state["state"], state["detail"]

    @property
    def helper(self) -> int:
        """Return the process id of the running helper."""
        return int((self.folder / "helper.lock").read_text())


def ports(process: int) -> Sequence[str]:
    """Return the internet sockets on which a process listens."""
    open_files = set()
    for entry in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed in the meantime
            open_files.add(str(entry.readlink()))
    lines = [
        line.split()
        for table in ("tcp", "tcp6", "udp", "udp6")
        for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]
    ]
    waiting = [line for line in lines if line[3] in (_LISTENS, _TAKES_DATAGRAMS)]
    return [line[1] for line in waiting if f"socket:[{line[9]}]" in open_files]
