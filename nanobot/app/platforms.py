"""The way to the platforms: what runs the channels, what they get of the core, what delivers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from nanobot.agent.limits import SenderRate
from nanobot.app.base import Base
from nanobot.app.channels import build_web, menu_of
from nanobot.app.model import secrets
from nanobot.app.telling import tell_of_channel, warn_of_channel
from nanobot.bus.sqlite_journal import Outbox
from nanobot.channel import ChannelHost
from nanobot.commands import CommandRegistry
from nanobot.gateway.dispatcher import Dispatcher
from nanobot.gateway.host import Host, HostParts
from nanobot.gateway.supervisor import Supervisor
from nanobot.gateway.webserver import WebServer
from nanobot.security.redaction import Redactor


@dataclass(frozen=True, slots=True)
class Platforms:
    """What others need to reach in it."""

    supervisor: Supervisor
    dispatcher: Dispatcher
    web: WebServer


def build_platforms(base: Base, commands: CommandRegistry) -> Platforms:
    """Put it together. `commands` are those that channels show in their menus."""
    outbox = Outbox(base.stores.journal.database)
    dispatcher = Dispatcher(base.outlets, outbox, base.screen, base.clock, base.rng)
    hosts: dict[str, ChannelHost] = {}
    supervisor = Supervisor(
        base.outlets,
        hosts,
        base.clock,
        base.rng,
        on_off=partial(tell_of_channel, base),
        redactor=Redactor(secrets(base.settings)),
    )
    web = build_web(base.settings)
    parts = HostParts(
        base.bus,
        base.stores.journal,
        base.access,
        web,
        base.settings.home,
        base.clock,
        base.background,
        menu=partial(menu_of, commands),
        report=supervisor.report,
        connected=supervisor.connected,
        alive=supervisor.alive,
        rate=SenderRate(base.settings.limits.messages_per_minute, base.clock, commands.is_owner),
        show=base.screen.show,
        warn=partial(warn_of_channel, base),
    )
    hosts.update((name, Host(name, parts, waits=name != base.cli.name)) for name in base.outlets)
    return Platforms(supervisor, dispatcher, web)
