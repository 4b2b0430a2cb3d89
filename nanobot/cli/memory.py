"""`nanobot memory` and `nanobot dream`. They print the texts of the chat, with terminal
commands in place of the chat's."""

from __future__ import annotations

import re

from nanobot.cli.client import Data
from nanobot.cli.command import (
    Commands,
    Options,
    Parser,
    WrongUsage,
    confirm_change,
    count,
    day,
    words,
)
from nanobot.errors import NanobotError

ROLES = ("user", "assistant", "tool")
SOURCES = ("message", "history", "note", "memory", "library")

_CHAT_COMMAND = re.compile(
    r"(?<![\w.~/])/(memory(?= (?:pending|accept|drop|search|why|importance)\b)|memory(?=`)"
    r"|dream-restore(?= --)|forget(?= --erase)|dream(?=`))"
)
_NAMES = {
    "memory": "nanobot memory",
    "dream-restore": "nanobot memory restore",
    "forget": "nanobot memory forget",
    "dream": "nanobot dream",
}


def add_memory(memory: Parser) -> None:
    what = memory.group()
    _finish(what.add("show", "show facts and statistics", run_operation))
    _add_search(what)
    why = what.add("why", "show the source of a fact", run_operation)
    why.argument("text", "TEXT", "words from the fact", type=words)
    _finish(why)
    importance = what.add("importance", "set the importance of a fact", run_operation)
    importance.argument(
        "level", "N", "1 to 5 (default: 3; facts with 5 are always in the prompt)", type=count
    )
    importance.argument("text", "TEXT", "words from the fact", type=words)
    _finish(importance)
    log = what.add("log", "show a change to memory (default: the latest)", run_operation)
    log.argument("version", "VERSION", "the change's number", type=count, nargs="?")
    _finish(log)
    restore = what.add(
        "restore", "list changes, undo a change, or go back to an earlier state", restore_version
    )
    choice = restore.add_mutually_exclusive_group(required=True)
    choice.add_argument("--list", action="store_true", help="list the latest changes")
    choice.add_argument("--version", type=count, metavar="N", help="undo this change")
    back = "restore all files to their state after this change"
    choice.add_argument("--to", type=count, metavar="N", help=back)
    _finish(restore)
    forget = what.add("forget", "forget a fact and its sources", forget_fact)
    forget.argument("text", "TEXT", "words from the fact", type=words)
    forget.flag("--erase", "also remove the text from all stored data")
    forget.yes()
    _finish(forget)
    _finish(what.add("pending", "list pending facts", run_operation))
    for name, summary in (("accept", "accept pending facts"), ("drop", "drop pending facts")):
        decide = what.add(name, summary, decide_pending)
        decide.argument("numbers", "N", "the facts' numbers in `memory pending`", nargs="+")
        _finish(decide)
    what.add("rebuild", "rebuild the search index", run_operation).json()
    sync = what.add("sync", "sync the long-term memory files with a git repository", run_operation)
    sync.argument("remote", "REMOTE", "the repository's address or folder")
    sync.json()


def add_dream(dream: Parser) -> None:
    dream.set_defaults(run=run_operation, what="dream")
    _finish(dream)


def _add_search(what: Commands) -> None:
    search = what.add("search", "search conversations, memory, and documents", run_operation)
    search.argument("text", "TEXT", "the words to search for", type=words)
    search.option("--session", "KEY", "search only this conversation")
    search.option("--since", "DATE", "the first day to search, such as 2026-11-21", type=day)
    search.option("--until", "DATE", "the last day to search", type=day)
    search.add_argument("--role", choices=ROLES, help="search only messages with this role")
    search.add_argument("--source", choices=SOURCES, help="search only this kind of text")
    search.option("-n", "N", "number of results (default: 10)", type=count, dest="limit")
    _finish(search)


def _finish(parser: Parser) -> None:
    parser.option(
        "--scope",
        "NAME",
        "the memory to use: owner (default), people/…, or groups/…",
        default="owner",
    )
    parser.json()


def run_operation(options: Options, operation: str = "") -> int:
    """Run an operation, by default the one named like the command, and print its text."""
    return options.print_result(_operate(options, operation or options.what))


def _operate(options: Options, operation: str) -> Data:
    try:
        data = options.operate(f"memory.{operation}", **options.operands)
    except NanobotError as error:
        error.hint = _replace_commands(error.hint)
        raise
    if "text" in data:
        data["text"] = _replace_commands(data.text("text"))
    return data


def _replace_commands(text: str) -> str:
    return _CHAT_COMMAND.sub(lambda match: _NAMES[match[1]], text)


def restore_version(options: Options) -> int:
    return run_operation(options, "versions" if vars(options).pop("list") else "restore")


def decide_pending(options: Options) -> int:
    found = ",".join(options.numbers).strip(",")
    if not re.fullmatch(r"[0-9]{1,9}(,+[0-9]{1,9})*", found):
        hint = "`nanobot memory pending` lists the numbers."
        raise WrongUsage("facts must be specified by number", hint=hint)
    options.numbers = [int(word) for word in found.split(",") if word]
    return run_operation(options)


def forget_fact(options: Options) -> int:
    """Show the plan, ask, and forget. Return 1 if nothing was forgotten."""
    options.expect_consent()
    if not options.yes:
        plan = _operate(options, "forget_plan")
        options.print_result(plan)
        question = "Erase this permanently?" if options.erase else "Forget this?"
        if not (plan.get("found") and confirm_change(question)):
            return 1
    done = _operate(options, "forget")
    options.print_result(done)
    return 0 if done.get("found") else 1
