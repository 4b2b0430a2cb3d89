"""A channel's host as in the core, with a real bus and journal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from nanobot.bus.events import Notice
from nanobot.bus.journal import InboxEntry, OutboxPart
from nanobot.bus.queue import MessageBus
from nanobot.bus.sql_journal import Journal
from nanobot.clock import Clock
from nanobot.commands import Answer, Command, CommandCall, CommandRegistry
from nanobot.gateway.channels import ChannelState, Host, HostParts, SenderRateLimit
from nanobot.gateway.webserver import WebServer
from nanobot.security.access import Access, AccessRules
from nanobot.security.redaction import Redactor
from nanobot.tasks import Background
from nanobot.testing import FakeClock
from tests.doubles.state import MemoryState


async def no_help(_: CommandCall) -> Answer:
    """Fail, because it is never called."""
    return Answer("")


def host_parts(
    journal: Journal,
    home: Path,
    clock: Clock,
    *,
    state: MemoryState | None = None,
    rules: AccessRules | None = None,
    per_minute: int = 0,
    show: Callable[[Notice], None] = lambda _: None,
    warn: Callable[[str, str], None] = lambda _, __: None,
) -> HostParts:
    """Return the parts for the host of the channel `fake`."""
    (home / "state").mkdir(exist_ok=True)
    return HostParts(
        MessageBus(journal),
        journal,
        Access(state or MemoryState(), {"fake": rules or AccessRules()}, {}, clock),
        WebServer(port=0),
        home,
        clock,
        Background(),
        CommandRegistry([Command("help", "helps", no_help)]),
        rate=SenderRateLimit(per_minute, lambda _: False),
        redactor=Redactor(),
        show=show,
        warn=warn,
        expect_own=lambda _: None,
        is_owners=lambda _: True,
    )


class Core:
    """A host with its bus, and the messages that came through."""

    def __init__(
        self, journal: Journal, home: Path, *allow: str, per_minute: int = 0, **rules: object
    ) -> None:
        self.shown: list[Notice] = []
        self.documents = MemoryState()
        self.state = ChannelState("fake")
        asked = replace(AccessRules(frozenset(allow)), **rules)
        parts = host_parts(
            journal,
            home,
            FakeClock(),
            state=self.documents,
            rules=asked,
            per_minute=per_minute,
            show=self.shown.append,
        )
        self.bus, self.access, self.web = parts.bus, parts.access, parts.web
        self.background = parts.background
        self.host = Host(self.state, parts)

    @property
    def entries(self) -> list[InboxEntry]:
        """Take the new entries of the inbox."""
        return self.bus.unread_entries()

    @property
    def parts(self) -> list[OutboxPart]:
        """Take the new parts of the outbox."""
        return self.bus.unread_parts()
