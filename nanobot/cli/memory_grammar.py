"""The grammar of `nanobot memory` and `nanobot dream`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nanobot.cli.grammar import add, add_json, choices, count, day, home_of, words

if TYPE_CHECKING:
    from nanobot.cli.grammar import Commands

ROLES = ("user", "assistant", "tool")
SOURCES = ("message", "history", "note", "memory", "library")


def add_memory(commands: Commands) -> None:
    """`nanobot memory …`."""
    memory = commands.add_parser(
        "memory",
        help="look into, explain, undo and share what is remembered",
        description="Look into, explain, undo and share what is remembered.",
    )
    what = choices(memory)
    _finish(add(what, "show", "what is remembered, and how much", _show))
    _add_search(what)
    why = add(what, "why", "where a remembered line comes from", _why)
    why.add_argument("text", type=words, metavar="TEXT", help="words of the line")
    _finish(why)
    log = add(what, "log", "what a change of memory did, the latest by default", _log)
    log.add_argument("version", type=count, nargs="?", metavar="VERSION", help="its number")
    _finish(log)
    restore = add(what, "restore", "list the changes, undo one, or go back to one", _restore)
    choice = restore.add_mutually_exclusive_group(required=True)
    choice.add_argument("--list", action="store_true", help="the latest changes")
    choice.add_argument("--version", type=count, metavar="N", help="undo this change")
    choice.add_argument(
        "--to", type=count, metavar="N", help="bring all files back to what they were after it"
    )
    _finish(restore)
    _add_forget(what)
    _finish(add(what, "pending", "facts that wait to be confirmed", _pending))
    for name, summary in (("accept", "remember facts that waited"), ("drop", "give them up")):
        decide = add(what, name, summary, _decide)
        decide.add_argument("numbers", nargs="+", metavar="N", help="as `memory pending` shows")
        _finish(decide)
    add_json(add(what, "rebuild", "make the search index anew", _rebuild))
    sync = add(what, "sync", "share the long-term files through a git repository", _sync)
    sync.add_argument("remote", metavar="REMOTE", help="its address or folder")
    add_json(sync)


def add_dream(commands: Commands) -> None:
    """`nanobot dream`."""
    _finish(add(commands, "dream", "learn now from what was said", _dream))


def _add_search(what: Commands) -> None:
    search = add(what, "search", "search everything that was said and written down", _search)
    search.add_argument("text", type=words, metavar="TEXT", help="what to look for")
    search.add_argument("--session", metavar="KEY", help="in this conversation only")
    search.add_argument("--since", type=day, metavar="DATE", help="from this day on, as 2026-11-21")
    search.add_argument("--until", type=day, metavar="DATE", help="up to this day")
    search.add_argument("--role", choices=ROLES, help="said by")
    search.add_argument("--source", choices=SOURCES, help="in this kind of text only")
    search.add_argument("-n", type=count, metavar="N", help="how many results (default: 10)")
    _finish(search)


def _add_forget(what: Commands) -> None:
    forget = add(what, "forget", "forget a fact and what it rests on", _forget)
    forget.add_argument("text", type=words, metavar="TEXT", help="words of it")
    forget.add_argument(
        "--erase", action="store_true", help="also remove the text from everything that is stored"
    )
    forget.add_argument("--yes", action="store_true", help="do not ask")
    _finish(forget)


def _finish(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scope",
        metavar="NAME",
        default="owner",
        help="whose memory: owner (default), people/…, groups/…",
    )
    add_json(parser)


def _run(options: argparse.Namespace, operation: str, **arguments: object) -> int:
    from nanobot.cli.memory import run

    given = {name: value for name, value in arguments.items() if value}
    return run(home_of(options), operation, given, as_json=options.json)


def _show(options: argparse.Namespace) -> int:
    return _run(options, "memory.show", scope=options.scope)


def _search(options: argparse.Namespace) -> int:
    return _run(
        options,
        "memory.search",
        text=options.text,
        scope=options.scope,
        session=options.session,
        since=options.since,
        until=options.until,
        role=options.role,
        source=options.source,
        limit=options.n,
    )


def _why(options: argparse.Namespace) -> int:
    return _run(options, "memory.why", text=options.text, scope=options.scope)


def _log(options: argparse.Namespace) -> int:
    return _run(options, "memory.log", version=options.version, scope=options.scope)


def _restore(options: argparse.Namespace) -> int:
    if options.list:
        return _run(options, "memory.versions", scope=options.scope)
    return _run(
        options, "memory.restore", version=options.version, to=options.to, scope=options.scope
    )


def _forget(options: argparse.Namespace) -> int:
    from nanobot.cli.memory import forget

    return forget(
        home_of(options),
        options.text,
        options.scope,
        erase=options.erase,
        sure=options.yes,
        as_json=options.json,
    )


def _pending(options: argparse.Namespace) -> int:
    return _run(options, "memory.pending", scope=options.scope)


def _decide(options: argparse.Namespace) -> int:
    from nanobot.cli.memory import numbers

    chosen = numbers(options.numbers)
    return _run(options, f"memory.{options.what}", numbers=chosen, scope=options.scope)


def _rebuild(options: argparse.Namespace) -> int:
    return _run(options, "memory.rebuild")


def _sync(options: argparse.Namespace) -> int:
    return _run(options, "memory.sync", remote=options.remote)


def _dream(options: argparse.Namespace) -> int:
    return _run(options, "memory.dream", scope=options.scope)
