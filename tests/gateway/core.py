"""A channel's host as the core has it, with a real bus and journal behind it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nanobot.agent.limits import SenderRate
from nanobot.bus.events import Notice
from nanobot.bus.journal import InboxEntry, Journal, OutboxPart
from nanobot.bus.queue import MessageBus
from nanobot.channel import MenuEntry
from nanobot.gateway.host import Host, HostParts
from nanobot.gateway.webserver import WebServer
from nanobot.security.access import Access, AccessRules
from nanobot.tasks import Background
from nanobot.testing import FakeClock


class Core:
    """A host with a bus behind it, and what came through."""

    def __init__(
        self, journal: Journal, home: Path, *allow: str, per_minute: int = 0, **rules: object
    ) -> None:
        self.entries: list[InboxEntry] = []
        self.parts: list[OutboxPart] = []
        self.trouble: list[tuple[str, str]] = []
        self.accounts: list[tuple[str, str]] = []
        self.heard: list[tuple[str, float]] = []
        self.shown: list[Notice] = []
        self.background = Background()
        self.web = WebServer(port=0)
        clock = FakeClock()
        bus = self.bus = MessageBus(journal)
        bus.connect(self.entries.append, self.parts.extend)
        (home / "state").mkdir(exist_ok=True)
        asked = replace(AccessRules(frozenset(allow)), **rules)  # type: ignore[arg-type]
        self.access = Access(home / "state" / "access.json", {"fake": asked}, {}, clock)
        parts = HostParts(
            bus,
            journal,
            self.access,
            self.web,
            home,
            clock,
            self.background,
            menu=lambda: (MenuEntry("help", "helps"),),
            report=lambda name, trouble: self.trouble.append((name, trouble)),
            connected=lambda name, who: self.accounts.append((name, who)),
            alive=lambda name, within: self.heard.append((name, within)),
            rate=SenderRate(per_minute, clock, lambda _: False),
            show=self.shown.append,
            warn=lambda name, text: self.trouble.append((name, text)),
        )
        self.host = Host("fake", parts)
