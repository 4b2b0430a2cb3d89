"""`nanobot agent`: one message and its reply, one per line of standard input, or a chat."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from nanobot.cli.client import Client
from nanobot.cli.consent import Consent
from nanobot.cli.reach import connected
from nanobot.cli.show import fitted
from nanobot.config import not_imported
from nanobot.errors import NanobotError
from nanobot_cli.text import clean, file_line, ways, without_escapes
from nanobot_cli.wire import Note, Reply, Said, is_session_key

_ANSWERED = ("done", "stopped")

_NOBODY_WAITS = "start `nanobot gateway` so that it is answered when the model is back\n"


class AgentOptions(NamedTuple):
    """What the command line says. `message` is None without -m."""

    home: Path
    message: str | None
    session: str
    as_json: bool


class WrongUse(NanobotError):
    """The command line makes no sense. Exit code 2, as argparse has it."""

    exit_code = 2


class OutputRefused(NanobotError):
    """Standard output takes no more: the disk is full, say. Exit code 74: EX_IOERR."""

    exit_code = 74


def run_agent(options: AgentOptions) -> int:
    """Talk as the options say; returns the exit code."""
    if not is_session_key(options.session):
        raise WrongUse(
            f"{options.session!r} is no session key", hint="One looks like cli:direct or cli:work."
        )
    if hint := not_imported(options.home):
        sys.stderr.write(fitted(f"note: {hint}\n", sys.stderr))
    if options.message is None and sys.stdin.isatty() and sys.stdout.isatty():
        return _chat(options)
    return _say_all(_messages(options), options)


def _messages(options: AgentOptions) -> Iterator[str]:
    """What to say: the argument, all of standard input, or each of its lines."""
    if options.message not in (None, "-"):
        text = options.message or ""
    elif options.message == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "replace").rstrip("\r\n")
    else:
        lines = (line.decode("utf-8", "replace").strip("\r\n") for line in sys.stdin.buffer)
        yield from (line for line in lines if line.strip())
        return
    if not text.strip():
        raise WrongUse("there is nothing to say: the message is empty")
    yield text


def _say_all(messages: Iterator[str], options: AgentOptions) -> int:
    """Say one message after the other, each after the reply to the one before."""
    first = next(messages, None)
    if first is None:
        return 0
    answered = True
    with connected(options.home) as client, _stopped_by_ctrl_c(client, options.session):
        consent = Consent(client, options.session)
        for text in chain([first], messages):
            said, reply = _ask(client, consent, text, options)
            _print_reply(said, reply, options)
            if reply.outcome == "waiting" and client.hosting:
                sys.stderr.write(_NOBODY_WAITS)
            answered = answered and reply.outcome in _ANSWERED
    return 0 if answered else 1


def _ask(
    client: Client, consent: Consent, text: str, options: AgentOptions
) -> tuple[list[Said], Reply]:
    """Say something; the reply and what the agent said before it, which is printed at once where
    it is for people."""
    messages: list[Said] = []
    for event in consent.events(client.say(text, options.session)):
        match event:
            case Note():
                sys.stderr.write(clean(f"note: {event.text}\n"))
            case Said():
                messages.append(event)
                if not options.as_json:
                    lines = [event.text] if event.text else []
                    _print("\n".join([*lines, *map(file_line, event.files), *ways(event.choices)]))
            case Reply():
                return messages, event
    raise NanobotError("the gateway did not answer")


def _print_reply(messages: list[Said], reply: Reply, options: AgentOptions) -> None:
    if options.as_json:
        _print(_as_json(messages, reply, options.session))
    elif reply.text or not messages:  # what was said before may have been the whole reply
        _print(reply.text)


def _as_json(messages: list[Said], reply: Reply, session: str) -> str:
    return json.dumps(
        {
            "reply": reply.text,
            "messages": [
                {"text": said.text, "files": [file._asdict() for file in said.files]}
                for said in messages
            ],
            "tools": reply.tools,
            "tokens": {"prompt": reply.prompt_tokens, "completion": reply.completion_tokens},
            "milliseconds": reply.milliseconds,
            "session": session,
            "turn": reply.turn,
            "outcome": reply.outcome,
        }
    )


def _print(text: str) -> None:
    text = clean(text) if sys.stdout.isatty() else without_escapes(text)
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputRefused(f"cannot write the output: {error.strerror}") from error


@contextlib.contextmanager
def _stopped_by_ctrl_c(client: Client, session: str) -> Iterator[None]:
    """Leaving by Ctrl-C stops the turn too, so that it does not go on unseen."""
    try:
        yield
    except KeyboardInterrupt:
        client.stop(session)
        raise


def _chat(options: AgentOptions) -> int:
    if options.as_json:
        raise WrongUse("--json is for -m and for piped input, not for the chat")
    from nanobot_cli.terminal import Terminal

    with connected(options.home) as client:
        terminal = Terminal(client, options.session, history=options.home / "state" / "cli_history")
        terminal.run()
    return 0
