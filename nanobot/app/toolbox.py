"""The agent's tools, put together: the gate and all that stands behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from nanobot.agent.helpers import Helpers, Spawn
from nanobot.app.base import Base, Models
from nanobot.app.cron import JobChats, build_cron
from nanobot.app.gate import build_approvals, build_gate
from nanobot.app.mcp import build_mcp
from nanobot.app.memory import Remembering
from nanobot.app.outside import build_egress, build_helpers
from nanobot.app.skills import build_skills
from nanobot.app.tools import SandboxFinder, Surroundings, build_message_tool, build_tools
from nanobot.gateway.gateway import Closable
from nanobot.tooling import Tool, ToolRegistry
from nanobot.tooling.approvals import Approvals
from nanobot.tools.mcp import McpServers


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools, and what others need to reach in them."""

    registry: ToolRegistry
    approvals: Approvals
    around: Surroundings
    helpers: Helpers
    mcp: McpServers
    job_chats: JobChats

    @property
    def closables(self) -> tuple[Closable, ...]:
        """What holds connections or processes."""
        around = self.around
        return (
            around.egress,
            around.search_egress,
            around.public_egress,
            self.mcp,
            around.processes,
        )


def build_toolbox(
    base: Base, models: Models, memory: Remembering, extra_tools: Sequence[Tool]
) -> Toolbox:
    """All tools behind the one gate."""
    settings, stores, clock, bus = base.settings, base.stores, base.clock, base.bus
    web = settings.tools.web
    around = Surroundings(
        egress=build_egress(settings, web.allow_hosts, web.domains),
        search_egress=build_egress(settings, web.reachable),
        public_egress=build_egress(settings, domains=web.domains),
        sandbox=SandboxFinder(settings.tools.exec, settings.home),
        processes=base.processes,
        cron=build_cron(base),
        skills=build_skills(settings, stores.workspace, clock),
    )
    approvals = build_approvals(base.scopes, base.courier, base.lanes, clock)
    tools = build_gate(settings, stores, approvals, clock)
    build_tools(tools, stores, memory, settings, around, clock, base.courier.say_at)
    tools.register(build_message_tool(stores, memory, bus, base.outlets, base.known, clock))
    helpers = build_helpers(
        settings, stores, tools, models.provider, models.counter, around.processes, bus, clock
    )
    tools.register(Spawn(helpers))
    mcp = build_mcp(settings, tools, clock, partial(base.courier.warn_elsewhere, ""))
    mcp.load()
    tools.register_all(extra_tools)
    return Toolbox(tools, approvals, around, helpers, mcp, JobChats(base.known, base.scopes))
