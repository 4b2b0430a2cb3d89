"""`nanobot agent`: one message and its reply, one per line of standard input, or a chat."""

from __future__ import annotations

import contextlib
import json
import select
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from nanobot.cli.client import Client, Data
from nanobot.cli.command import Options, Parser, WrongUsage, print_text
from nanobot.cli.gateway import open_client
from nanobot.config import not_imported
from nanobot.errors import NanobotError
from nanobot.text import clean
from nanobot_cli.text import Question, file_line, question_of, ways
from nanobot_cli.wire import (
    DEFAULT_SESSION,
    AgentMessage,
    ChatEvent,
    Note,
    Refused,
    Reply,
    is_session_key,
)

_ANSWERED = ("done", "stopped")

_WAITS = (
    "note: your message will be answered once the model is available again and `nanobot gateway` "
    "is running\n"
)
_STOP_SECONDS = 2.0  # seconds to wait for the turn to stop after Ctrl-C


def add_agent(agent: Parser) -> None:
    agent.set_defaults(run=run_agent)
    agent.add_argument(
        "-m",
        "--message",
        metavar="TEXT",
        help="send a message, print the reply, and exit (use - to read stdin)",
    )
    session = "the conversation to use (default: %(default)s)"
    agent.add_argument("-s", "--session", metavar="KEY", default=DEFAULT_SESSION, help=session)
    agent.json()


def run_agent(options: Options) -> int:
    if not is_session_key(options.session):
        raise WrongUsage(
            f"{options.session!r} is not a valid session key",
            hint="Use a key such as cli:direct or cli:work.",
        )
    home = options.home
    if hint := not_imported(home):
        print_text(f"note: {hint}\n", sys.stderr)
    if options.message is not None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _say_all(home, _messages(options), options)
    if options.json:
        raise WrongUsage("--json requires -m or piped input")
    from nanobot_cli.terminal import Terminal

    with open_client(home) as client:
        terminal = Terminal(client, options.session, history=home / "state" / "cli_history")
        terminal.run()
        _note_jobs(client)
        queue = _list_if_hosted(client, "queue.list", "inbox")
        if any(one.get("state") == "waiting" for one in queue):
            sys.stderr.write(_WAITS)
    return 0


def _messages(options: Options) -> Iterator[str]:
    """Yield the messages to send: the argument, all of standard input, or each of its lines."""
    if options.message not in (None, "-"):
        text = options.message or ""
    elif options.message == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "replace").rstrip("\r\n")
    else:
        lines = (line.decode("utf-8", "replace").strip("\r\n") for line in sys.stdin.buffer)
        yield from (line for line in lines if line.strip())
        return
    if not text.strip():
        raise WrongUsage("the message is empty")
    yield text


def _say_all(home: Path, messages: Iterator[str], options: Options) -> int:
    """Send each message after the reply to the one before."""
    first = next(messages, None)
    if first is None:
        return 0
    answered = True
    with open_client(home) as client, _stop_turn_on_ctrl_c(client, options.session):
        for text in chain([first], messages):
            said, reply = _ask(client, text, options)
            if options.json:
                _print(_as_json(said, reply, options.session))
            elif reply.text or not said:  # the messages before may be the whole reply
                _print(reply.text)
            if reply.outcome == "waiting":
                sys.stderr.write(_WAITS)
            if "cron" in reply.tools:
                _note_jobs(client)
            answered = answered and reply.outcome in _ANSWERED
    return 0 if answered else 1


def _ask(client: Client, text: str, options: Options) -> tuple[list[AgentMessage], Reply]:
    """Send a message. Return the agent's messages before the reply, and the reply. Without `--json`
    the messages are printed at once."""
    messages: list[AgentMessage] = []
    for event in replies(client, client.send_message(text, options.session), options.session):
        match event:
            case Note():
                print_text(f"note: {event.text}\n", sys.stderr)
            case AgentMessage():
                messages.append(event)
                if not options.json:
                    lines = [event.text] if event.text else []
                    _print("\n".join([*lines, *map(file_line, event.files), *ways(event.choices)]))
            case Reply():
                return messages, event
    raise NanobotError("the gateway did not reply")


def _as_json(messages: list[AgentMessage], reply: Reply, session: str) -> str:
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
    text = clean(text)
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    sys.stdout.flush()


@contextlib.contextmanager
def _stop_turn_on_ctrl_c(client: Client, session: str) -> Iterator[None]:
    """Stop the turn on Ctrl-C, so that it does not continue unseen."""
    try:
        yield
    except KeyboardInterrupt:
        with contextlib.suppress(NanobotError):
            list(replies(client, client.send_message("/stop", session), session, _STOP_SECONDS))
        raise


def _note_jobs(client: Client) -> None:
    """Print how many scheduled jobs are pending, if nanobot ends with this command."""
    jobs = _list_if_hosted(client, "cron.list", "jobs")
    if pending := sum(job.get("enabled") is True for job in jobs):
        what = "1 scheduled job runs" if pending == 1 else f"{pending} scheduled jobs run"
        print_text(
            f"note: {what} only while nanobot is running (start it with `nanobot gateway`)\n",
            sys.stderr,
        )


def _list_if_hosted(client: Client, operation: str, key: str) -> list[Data]:
    """Return the list of an operation if the gateway ends with this command, else an empty one."""
    if client.is_hosted:
        with contextlib.suppress(NanobotError):
            return Data({"list": client.ask(operation, {})}).record("list").records(key)
    return []


def replies(
    client: Client, message_id: str, session: str, seconds: float | None = None
) -> Iterator[ChatEvent]:
    """Yield the events of a message, up to its reply. Questions that the turn asks are answered
    here. Stop if the gateway is silent for `seconds`. Raises `NanobotError` if the gateway rejects
    the message."""
    while client.waiting and select.select([client], [], [], seconds)[0]:
        for event in client.read_events():
            if event.id != message_id:
                continue
            if isinstance(event, Refused):
                raise NanobotError(event.error, hint=event.hint)
            if isinstance(event, AgentMessage) and (question := question_of(event)) is not None:
                client.send_message(_answer_question(question), session)
                continue
            yield event
            if isinstance(event, Reply):
                return


def _answer_question(question: Question) -> str:
    """Ask the person on standard error and return the answer. Without a terminal the answer is no,
    so that a script does not wait for ten minutes."""
    print_text(f"{question.said.text}\n", sys.stderr)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        print_text("Not approved, because approval requires a terminal.\n", sys.stderr)
        return f"{question.no.value} unseen"
    import termios

    termios.tcflush(sys.stdin, termios.TCIFLUSH)  # drop keys typed before the question
    while True:
        print_text(f"{question.keys}: ", sys.stderr)
        line = sys.stdin.readline()
        value = question.answer(line) if line else question.no.value
        if value is not None:
            return value
