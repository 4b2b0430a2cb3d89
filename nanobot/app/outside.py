"""What reaches beyond the conversation: the network, helpers, other people's programs."""

from __future__ import annotations

import platform
import secrets
from collections.abc import Iterable
from functools import partial

from nanobot.agent.helpers import Equipment, HelperLimits, Helpers
from nanobot.agent.prompt import PromptRoom
from nanobot.agent.runner import AgentRunner
from nanobot.app.home import Stores
from nanobot.app.tools import HELPER_TOOLS
from nanobot.bus.queue import MessageBus
from nanobot.bus.sqlite_reports import HelperBook
from nanobot.clock import Clock
from nanobot.config.settings import Settings
from nanobot.providers.counter import TokenCounter
from nanobot.providers.port import Provider, Toolset
from nanobot.security.egress import Egress
from nanobot.templates import render
from nanobot.tooling import ToolRegistry
from nanobot.tools.shell import Processes


def build_egress(
    settings: Settings, allow_hosts: Iterable[str] = (), domains: Iterable[str] = ()
) -> Egress:
    """A way into the network, with exceptions of the owner's from what is public; where there are
    `domains`, to these alone."""
    proxy = settings.tools.web.proxy.get_secret_value()
    return Egress(allow_hosts=allow_hosts, domains=domains, proxy=proxy)


def build_helpers(
    settings: Settings,
    stores: Stores,
    tools: ToolRegistry,
    provider: Provider,
    counter: TokenCounter,
    processes: Processes,
    bus: MessageBus,
    clock: Clock,
) -> Helpers:
    """Helper agents, with some of `tools`."""
    wanted = settings.tools.helpers
    room = PromptRoom(settings.model.prompt_tokens, counter.count)

    def equip(scope: str) -> Equipment:
        few = tools.only(HELPER_TOOLS)
        runner = AgentRunner(
            provider,
            few,
            clock,
            max_iterations=wanted.max_iterations,
            max_tokens=settings.limits.tokens_per_turn,
            fit=room.fit,
        )
        text = render(
            "helper.md",
            workspace=str(stores.workspace.path),
            system=platform.system(),
            python=platform.python_version(),
        )
        return Equipment(runner, Toolset.of(few.specs(scope)), text.strip())

    return Helpers(
        equip=equip,
        book=HelperBook(stores.journal.database, clock),
        publish=bus.note,
        tidy=processes.stop,
        clock=clock,
        new_id=partial(secrets.token_hex, 3),
        limits=HelperLimits(wanted.max_concurrent, wanted.timeout_minutes),
    )
