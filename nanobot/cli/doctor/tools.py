"""What tools need: a sandbox that holds, the web, the programs of MCP servers."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot.cli.doctor.finding import Case, Finding

if TYPE_CHECKING:
    from nanobot.config.tools import McpServerSettings

_MENDING = "docs/security.md, “Which sandbox, and how to get it”, says what to do."
_SYSTEM = ("/usr", "/bin", "/sbin")


def check_sandbox(case: Case) -> Iterator[Finding]:
    """Whether commands are shut in, which is tried and not assumed."""
    settings = case.settings.tools.exec
    if not settings.enabled:
        yield Finding("sandbox", "ok", "there is no shell (tools.exec.enabled: false)")
        return
    if settings.sandbox == "none":
        hint = "Remove tools.exec.sandbox from config.yaml to have them shut in."
        yield Finding("sandbox", "warn", "commands run without one, as you", hint)
        return
    from nanobot.security.sandbox import find_sandbox

    found = asyncio.run(find_sandbox(settings.sandbox, private=(case.home,)))
    if found.sandbox is None:
        others = "\nWith tools.exec.sandbox: auto any other is tried."
        others = "" if settings.sandbox == "auto" else others
        hint = f"{found.problem}\n{_MENDING}{others}"
        yield Finding("sandbox", "fail", "none works here, so there is no shell", hint)
        return
    text = f"{found.sandbox.kind}, proven to hold\n{found.sandbox.notes}".rstrip()
    hint = f"{found.problem}\n{_MENDING}" if found.problem else ""
    yield Finding("sandbox", "warn" if found.problem else "ok", text, hint)


def check_web(case: Case) -> Iterator[Finding]:
    """By which way the web is reached; nothing is fetched."""
    web = case.settings.tools.web
    by = " by way of a proxy" if web.proxy.get_secret_value() else ""
    text = f"pages are fetched{by}; {web.search.provider} searches"
    yield Finding("web", "ok", text if web.enabled else "off (tools.web.enabled: false)")


def check_mcp(case: Case) -> Iterator[Finding]:
    """Whether servers can be started; none is."""
    servers = {name: one for name, one in case.settings.mcp.servers.items() if one.enabled}
    if servers and find_spec("mcp") is None:
        hint = f"`{sys.executable} -m pip install mcp`"
        yield Finding("mcp", "fail", "the package for MCP servers is not installed", hint)
    for name, server in servers.items():
        yield _server(name, server)


def _server(name: str, server: McpServerSettings) -> Finding:
    if server.url:
        return Finding("mcp", "ok", f"{name}: at {server.url}")
    program = shutil.which(server.command, path=server.variables.get("PATH"))
    if program is None:
        hint = f"Install it, or write its whole path into mcp.servers.{name}.command."
        return Finding("mcp", "fail", f"{name}: there is no program {server.command!r}", hint)
    if server.sandbox and not _is_shown(Path(program), server):
        folder = Path(program).resolve().parent
        hint = f"Add its folder ({folder}, or the one above) to mcp.servers.{name}.paths, and "
        hint += f"write {program} as its command."
        return Finding("mcp", "fail", f"{name}: the sandbox does not show {program}", hint)
    return Finding("mcp", "ok", f"{name}: {program}")


def _is_shown(program: Path, server: McpServerSettings) -> bool:
    """Whether a program and what it is a link to can be seen in the sandbox."""
    folders = [*_SYSTEM, *server.paths, *server.writable]
    return all(
        any(place.is_relative_to(folder) for folder in folders)
        for place in (program, program.resolve())
    )
