"""`nanobot skills` and `nanobot mcp`: third-party instructions and tools.

Its digest is sent along, so that only the content that was shown is enabled or accepted."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot.cli.client import Data
from nanobot.cli.command import (
    Options,
    Parser,
    WrongUsage,
    confirm_change,
    indent,
    path_of,
    print_text,
    settings_of,
    table,
    words,
)
from nanobot.cli.gateway import operate
from nanobot.errors import NanobotError
from nanobot.text import pluralize

if TYPE_CHECKING:
    from nanobot.config.changes import ConfigEdit, ExistingFiles
    from nanobot.config.yamltext import Setting
    from nanobot.skills.packages import Archive

_WIDTH = 100
_ROWS = (
    ("name", "name"), ("archive", "archive"), ("sha256", "sha256"), ("from", "source"),
    ("status", "status"), ("for", "description"),
    ("license", "license"), ("made for", "compatibility"), ("problem", "problem"),
    ("triggers", "triggers"), ("missing", "missing"), ("install", "install"),
)  # fmt: skip
_SECTIONS = (
    ("changes since you enabled it", "changes"), ("changes from the installed version", "against"),
    ("warnings", "warnings"),
)  # fmt: skip


def add_skills(skills: Parser) -> None:
    what = skills.group(
        "A skill is a folder with a SKILL.md that teaches the model a task. A skill in the "
        "workspace is used only after you enable it. If one of its files changes, you have to "
        "enable it again.",
    )
    what.operation("list", "list all skills and their state", "skills.list", format_skills)
    show = _add_name(what.add("show", "show a skill's content", show_skill))
    show.argument(
        "file", "FILE", "show only this file from the skill's folder", nargs="?", default=""
    ).json()
    _add_consent(_add_name(what.add("enable", "show a skill and enable it", enable_skill)))
    summary = "disable a skill"
    _add_name(what.operation("disable", summary, "skills.disable", format_skill_status))
    install = what.add("install", "copy a skill into the workspace and enable it", install_skill)
    where = "a folder in the Agent Skills format, an archive, or an archive's https URL"
    install.argument("path", "PATH", where, type=words)
    install.option("--sha256", "HASH", "the expected SHA-256 hash of the archive")
    install.option("--folder", "NAME", "the skill to install, if the archive contains several")
    install.flag("--replace", "replace an installed skill with the same name")
    _add_consent(install)


def _add_name(parser: Parser) -> Parser:
    return parser.argument("name", "NAME", "the skill's name in `skills list`", type=words)


def _add_consent(parser: Parser) -> None:
    parser.flag("--everyone", "enable it for everyone, not only for the owner").yes().json()


def show_skill(options: Options) -> int:
    if not options.file:
        return options.print_result(options.operate("skills.show", name=options.name), format_skill)
    data = options.operate("skills.file", name=options.name, file=options.file)
    return options.print_either(data, lambda: data.text("text").rstrip("\n") + "\n")


def enable_skill(options: Options) -> int:
    """Show a skill, ask, and enable it. Return 1 if the answer is no."""
    data = options.operate("skills.show", name=options.name)
    question = f"\nEnable {data.field('name')}?"
    return _agree(options, "skills.enable", data, question, name=options.name)


def _agree(options: Options, operation: str, skill: Data, question: str, **given: object) -> int:
    """Show a skill and ask. If the person agrees, run the operation on exactly that content."""
    if not options.ask_consent(format_skill(skill), question):
        return 1
    given |= {"digest": skill.text("digest"), "everyone": options.everyone}
    return options.print_result(options.operate(operation, **given), format_skill_status)


def install_skill(options: Options) -> int:
    """Install a copy of a folder, then enable it as `enable_skill` does. An archive is unpacked
    into the home, so that the gateway can read it."""
    from tempfile import TemporaryDirectory

    from nanobot.app.base import make_home
    from nanobot.skills import packages
    from nanobot.skills.folder import is_main

    path, is_file = path_of(options.path), not packages.is_address(options.path)
    if is_file and (path.is_dir() or is_main(path.name)):
        if options.sha256 or options.folder:
            raise WrongUsage("--sha256 and --folder only work with archives")
        return _install_folder(options, path)
    if is_file and not path.exists():
        raise NanobotError(
            f"{path} does not exist", hint="Use a folder, an archive, or an https URL."
        )
    make_home(options.home)
    archive = packages.read_archive(path) if is_file else _fetch(options)
    if options.sha256:
        packages.expect_digest(archive, options.sha256)
    about = {"archive": archive.name, "sha256": archive.digest}
    with TemporaryDirectory(prefix="skill-", dir=options.home / "state") as folder:
        place = packages.unpack(archive, Path(folder), options.folder)
        return _install_folder(options, place, **about)


def _fetch(options: Options) -> Archive:
    import asyncio

    from nanobot.app.tools import build_egress
    from nanobot.skills.packages import fetch_archive

    settings = settings_of(options.home)
    web = settings.tools.web
    egress = build_egress(settings, web.allow_hosts, web.domains)
    return asyncio.run(fetch_archive(egress, options.path))


def _install_folder(options: Options, place: Path, **about: str) -> int:
    data = options.operate("skills.package", path=str(place))
    name = data.field("name")
    if data.get("replaces") and not options.replace:
        raise NanobotError(
            f"the workspace already has a skill {name}",
            hint="To replace it, add --replace.",
        )
    replaces = ", replacing the existing one" if data.get("replaces") else ""
    question = f"\nInstall {name}{replaces}?"
    given = {"path": str(place), "replace": options.replace}
    return _agree(options, "skills.install", Data({**data, **about}), question, **given)


def format_skill_status(data: Data) -> str:
    status, note = data.field("status"), data.field("note")
    more = f" Note: {note}." if note and status == "enabled" else ""
    return f"{data.field('name')} is {status}.{more}\n"


def format_skills(data: Data) -> str:
    rows = []
    for skill in data.records("skills"):
        status = skill.field("status")
        if status == "enabled" and skill.get("available") is False:
            status = "incomplete"
        purpose = skill.field("note", _WIDTH) or skill.field("description", _WIDTH)
        rows.append((*skill.fields("name", "source"), status, purpose))
    return table(rows, "name", "from", "status", "purpose")


def format_skill(data: Data) -> str:
    rows = [(label, value) for label, key in _ROWS if (value := ", ".join(data.lines(key)))]
    if data.get("always") is True:
        rows.append(("always", "its text is in every prompt"))
    blocks = [table(rows), f"files\n{table(map(_format_file, data.records('files')), margin=2)}"]
    for title, key in _SECTIONS:
        if lines := data.lines(key):
            block = indent("\n".join(lines))
            blocks.append(f"{title}\n{block}")
    blocks.append(f"SKILL.md\n{indent(data.text('text'))}")
    return "\n".join(blocks)


def _format_file(file: Data) -> tuple[str, ...]:
    kind = file.field("kind")
    return file.field("path"), f"{file.number('size'):,} bytes", "" if kind == "text" else kind


_MORE_OR_UNTRIED = (
    "The sandbox contains only the system's programs. Add folders with --path, or skip the test "
    "with --no-test."
)
_NO_SERVERS = "There are no MCP servers. Add one with `nanobot mcp add` (docs/mcp.md).\n"


def add_mcp(mcp: Parser) -> None:
    what = mcp.group("Manage the MCP servers in config.yaml, and their tools.")
    new = what.add("add", "add a server and show its tools", add_server)
    new.argument("name", "NAME", "a name for the server", type=words)
    new.program("for a local server: its program and arguments, after --")
    new.option("--url", "URL", "for a remote server: its URL")
    new.option(
        "--env",
        "NAME=VALUE",
        "an environment variable for the program",
        action="append",
        default=[],
    )
    header = "an HTTP header for the server, such as 'Authorization: Bearer ${TOKEN}'"
    new.option("--header", "HEADER", header, action="append", default=[])
    new.option("--path", "DIR", "a folder that the server can read", action="append", default=[])
    new.option(
        "--writable", "DIR", "a folder that the server can change", action="append", default=[]
    )
    new.flag("--network", "allow the server to connect to public addresses")
    gone = what.add("remove", "remove a server from config.yaml", remove_server)
    gone.argument("name", "NAME", "the server's name in `mcp list`", type=words)
    new.flag("--no-test", "add the server without starting it")
    for command in (new, gone):
        command.yes().json()
    what.operation("list", "list all servers and their state", "mcp.list", format_servers)
    serve = what.add("serve", "serve a memory over MCP (standard input and output)", serve_memory)
    serve.option(
        "--person", "ID", "the person whose memory to serve, such as telegram:12345 (default: you)"
    )
    serve.flag("--writable", "allow clients to propose facts (you accept or drop them)")
    check = what.add(
        "check", "start a server, show its tools, and ask whether to accept new ones", check_server
    )
    approve = what.add("approve", "accept new or changed tools", approve_tools).yes()
    for command in (check, approve):
        command.json().argument("name", "NAME", "the server's name in `mcp list`")


def add_server(options: Options) -> int:
    """Show a server's tools and write its section. A running gateway then loads it."""
    from nanobot.cli.config import change_config, expect_no_secret
    from nanobot.config.changes import ConfigEdit, ExistingFiles
    from nanobot.config.yamltext import ConfigChange, value_at

    before = ExistingFiles.read(options.home, os.environ)
    section = ("mcp", "servers", options.name)
    if value_at(before.config, section) is not None:
        hint = f"Remove it with `nanobot mcp remove {options.name}`."
        raise NanobotError(f"there is already a server named {options.name}", hint=hint)
    changes = []
    for steps, value in _server_settings(options).items():
        expect_no_secret((*section, *steps), value)
        changes.append(ConfigChange((*section, *steps), value))
    edit = ConfigEdit(tuple(changes))
    options.expect_consent()
    works = None if options.no_test else _try_server(options, before, edit)
    if works is False:
        return 1
    counts = "Its tools become available once you accept them."
    code = change_config(options, before, edit, counts)
    if code or options.json or not works:
        return code
    return check_server(options)


def _try_server(options: Options, before: ExistingFiles, edit: ConfigEdit) -> bool | None:
    """Start a new server and show its tools. Return True if it works. If not, ask: None to add the
    server anyway, False to leave it. Raises `NanobotError` if it does not work and the options
    forbid questions."""
    from nanobot.config.changes import load_changed

    _offer_extra(options, "mcp")
    settings = load_changed(options.home, before, edit)
    print_text(f"Testing {options.name} …\n", sys.stderr)
    from nanobot.cli.offline import try_server

    try:
        tools = try_server(settings, options.name)
    except NanobotError as error:
        if options.yes or options.json:
            hint = f"{error.hint}\n{_MORE_OR_UNTRIED}".strip()
            raise NanobotError(
                f"nothing was changed, because the server does not work: {error}", hint=hint
            ) from error
        print_text(f"The server does not work: {error.for_people()}\n")
        return None if confirm_change("Add it anyway?") else False
    named = f": {', '.join(tools)}" if tools else ""
    print_text(f"It works and offers {pluralize(len(tools), 'tool')}{named}\n\n", sys.stderr)
    return True


def _offer_extra(options: Options, extra: str) -> None:
    """Offer to install a missing extra. Raises `NanobotError` if it is still missing."""
    from importlib import invalidate_caches
    from subprocess import DEVNULL

    from nanobot.config.extras import expect_extra, is_installed, missing_extra
    from nanobot.origin import install_command
    from nanobot.programs import Launch, environment, program

    command = install_command(extra)
    if command and not (is_installed(extra) or options.yes or options.json):
        text, how = missing_extra(extra)
        print_text(f"{text[0].upper()}{text[1:]}. {how}\n")
        if confirm_change("Install it now?"):
            own = environment(r"PIP_\w+|\w+_(?:proxy|PROXY)")
            launch = Launch((program(command[0]), *command[1:]), own)
            launch.popen(stdin=DEVNULL, stdout=None, stderr=None, session=False).wait()
            invalidate_caches()
    expect_extra(extra)


def _server_settings(options: Options) -> dict[tuple[str, ...], Setting]:
    """Return the server's settings from the command line, by key path. Raises `WrongUsage`."""
    if bool(options.program) == bool(options.url):
        hint = "Add `-- COMMAND ARGS…` at the end, or `--url URL`."
        raise WrongUsage("a server needs either a program or a URL", hint=hint)
    command, *args = options.program or [""]
    variables = _parse_pairs(options.env, "=", "--env")
    headers = _parse_pairs(options.header, ":", "--header")
    values: dict[tuple[str, ...], Setting] = {
        ("command",): command,
        ("args",): tuple(args),
        ("url",): options.url,
        **{("env", name): value for name, value in variables.items()},
        **{("headers", name): value for name, value in headers.items()},
        ("paths",): tuple(str(path_of(path)) for path in options.path),
        ("writable",): tuple(str(path_of(path)) for path in options.writable),
        ("network",): options.network,
    }
    return {steps: value for steps, value in values.items() if value}


def _parse_pairs(given: Sequence[str], between: str, option: str) -> dict[str, str]:
    pairs = {}
    for one in given:
        name, found, value = one.partition(between)
        if not (found and name.strip()):
            raise WrongUsage(f"{option} must have the form NAME{between}VALUE")
        pairs[name.strip()] = value.strip()
    return pairs


def remove_server(options: Options) -> int:
    from nanobot.cli.config import change_config
    from nanobot.config.changes import ConfigEdit, ExistingFiles
    from nanobot.config.yamltext import ConfigChange, value_at

    before = ExistingFiles.read(options.home, os.environ)
    path = ("mcp", "servers", options.name)
    if value_at(before.config, path) is None:
        known = value_at(before.config, path[:-1])
        there = (
            f"Servers: {', '.join(known)}." if isinstance(known, dict) else "There are no servers."
        )
        raise NanobotError(f"there is no server named {options.name} in config.yaml", hint=there)
    return change_config(options, before, ConfigEdit((ConfigChange(path, None),)))


def serve_memory(options: Options) -> int:
    """Answer MCP clients until standard input ends. Each call runs in the gateway, or on the files
    if none runs."""
    import asyncio
    from collections.abc import Mapping

    from nanobot.bus.events import OWNER_ACCOUNT
    from nanobot_api.memory import MemoryAccess, build_server

    async def ask(name: str, arguments: Mapping[str, object]) -> Data:
        return await asyncio.to_thread(operate, options.home, name, **arguments)

    async def serve() -> None:
        person = options.person.strip() or OWNER_ACCOUNT
        scope = (await ask("memory.scope_of", {"person": person})).text("scope")
        access = MemoryAccess(scope, options.writable, "mcp")
        server = build_server(lambda _: access, ask)
        from mcp.server.stdio import stdio_server

        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    asyncio.run(serve())
    return 0


def check_server(options: Options) -> int:
    """Start a server and show its tools. In a terminal, ask about pending ones."""
    data = options.operate("mcp.check", server=options.name)
    if data.lines("waiting") and not options.json and sys.stdin.isatty():
        options.yes = False
        return approve_tools(options)
    return options.print_result(data, format_server)


def approve_tools(options: Options) -> int:
    """Show the new and changed tools, ask, and accept exactly those. Return 1 if the answer is
    no."""
    options.expect_consent("Review the tools first, or accept them unseen with --yes.")
    waiting = options.operate("mcp.waiting", server=options.name)
    digest = waiting.text("digest")
    if not (options.json and digest):
        options.print_result(waiting, format_pending_tools)
    if not digest:
        return 0
    if not options.yes and not confirm_change("Accept these?"):
        return 1
    accepted = options.operate("mcp.approve", server=options.name, digest=digest)
    return options.print_result(accepted, format_server)


def format_servers(data: Data) -> str:
    rows, servers = [], data.records("servers")
    for server in servers:
        idle = "idle" if server.get("known") else "not started yet"
        state, tools = "running" if server.get("running") else idle, len(server.lines("tools"))
        rows.append((server.field("name"), state, str(tools), server.field("where")))
    listed = table(rows, "name", "state", "tools", "where")
    return listed + "".join(map(_format_notes, servers)) or _NO_SERVERS


def _format_notes(server: Data) -> str:
    name, notes = server.field("name"), ""
    if waiting := server.lines("waiting"):
        notes += (
            f"{name}: new or changed tools that you have not accepted yet: {', '.join(waiting)}\n"
        )
        notes += f"  To review them, run `nanobot mcp approve {name}`.\n"
    if tasks := server.lines("needs_tasks"):
        notes += (
            f"{name}: tools that are not available, because they only run as MCP tasks: "
            f"{', '.join(tasks)}\n"
        )
    if left_out := server.number("left_out"):
        notes += (
            f"{name}: {pluralize(left_out, 'tool')} left out, because the server has too many. "
            "To choose, set `tools:`.\n"
        )
    if problem := server.field("trouble", 500):
        notes += f"{name}: {problem}\n"
    return f"\n{notes}" if notes else ""


def format_server(server: Data) -> str:
    tools = "".join(f"{name}\n" for name in server.lines("tools"))
    head = f"{server.field('name')} offers {pluralize(len(server.lines('tools')), 'tool')}\n"
    return head + indent(tools) + _format_notes(server)


def format_pending_tools(data: Data) -> str:
    import difflib

    text = ""
    for tool in data.records("waiting"):
        before, lines = tool.record("before"), _card_lines(tool.record("now"))
        text += f"{tool.field('name')} ({'changed' if before else 'new'})\n"
        if before:
            lines = list(difflib.unified_diff(_card_lines(before), lines, lineterm="", n=2))[2:]
        text += indent("\n".join(lines)) + "\n"
    return text or "No tools are pending.\n"


def _card_lines(card: Data) -> list[str]:
    lines = card.text("description").splitlines()
    lines += json.dumps(json.loads(card.text("schema")), indent=1).splitlines()
    return [*lines, f"read-only: {'yes' if card.get('read_only') is True else 'no'}"]
