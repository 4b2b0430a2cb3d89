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
from nanobot_cli.conversations import (
    ConversationList,
    LastConversation,
    TemporaryChat,
    number_entries,
)
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
    place = agent.add_mutually_exclusive_group()
    session = f"the conversation to use (default: the last one; {DEFAULT_SESSION} in scripts)"
    place.add_argument("-s", "--session", metavar="KEY", default="", help=session)
    last = "continue the last conversation, also of the page"
    place.add_argument("-c", "--continue", dest="continues", action="store_true", help=last)
    resume = "search and choose a conversation to continue"
    place.add_argument("-r", "--resume", metavar="WORDS", nargs="?", const="", help=resume)
    temporary = "chat without storing anything"
    place.add_argument("--temporary", action="store_true", help=temporary)
    agent.json()


def run_agent(options: Options) -> int:
    _check(options)
    home = options.home
    if hint := not_imported(home):
        print_text(f"note: {hint}\n", sys.stderr)
    if options.message is not None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _say_all(home, _messages(options), options)
    if options.json:
        raise WrongUsage("--json requires -m or piped input")
    return _chat(home, options)


def _check(options: Options) -> None:
    if options.session and not is_session_key(options.session):
        raise WrongUsage(
            f"{options.session!r} is not a valid session key",
            hint="Use a key such as cli:direct or cli:work.",
        )
    if options.resume is not None and options.message is not None:
        raise WrongUsage("--resume can't be used with -m", hint="Use --continue or --session KEY.")


def _chat(home: Path, options: Options) -> int:
    from nanobot_cli.terminal import Terminal

    with open_client(home) as client:
        last = LastConversation(home / "state" / "cli_session")
        session = options.session or (_last_used(client) if options.continues else last.read())
        if options.continues:
            last.write(session)
        chat = TemporaryChat() if options.temporary else None
        terminal = Terminal(
            client,
            chat.key if chat else session,
            history=home / "state" / "cli_history",
            last=last,
            resume=options.resume,
            temporary=chat,
        )
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
    if options.resume is None:
        first = next(messages, None)
        if first is None:
            return 0
        messages = chain([first], messages)
    answered = True
    with open_client(home) as client:
        session, chat = options.session or DEFAULT_SESSION, None
        if options.temporary:
            chat = TemporaryChat()
            session = chat.key
        elif options.continues:
            session = _last_used(client)
        elif options.resume is not None:
            session, messages = _choose_by_number(client, options.resume, messages)
        with _stop_turn_on_ctrl_c(client, session):
            for text in messages:
                answered = _say(client, text, session, chat, json=options.json) and answered
    return 0 if answered else 1


def _say(
    client: Client, text: str, session: str, chat: TemporaryChat | None, *, json: bool
) -> bool:
    """Send a message and print the reply. Return True if it was answered."""
    said, reply = _ask(client, text, session, chat, prints=not json)
    if json:
        _print(_as_json(said, reply, session))
    elif reply.text or not said:  # the messages before may be the whole reply
        _print(reply.text)
    if reply.outcome == "waiting":
        sys.stderr.write(_WAITS)
    if "cron" in reply.tools:
        _note_jobs(client)
    return reply.outcome in _ANSWERED


def _last_used(client: Client) -> str:
    return ConversationList(client.ask).last_used()


def _choose_by_number(
    client: Client, words: str, lines: Iterator[str]
) -> tuple[str, Iterator[str]]:
    """Print a numbered list of conversations, and return the choice of the first line and
    the messages for it. No line chooses none."""
    from nanobot.clock import SystemClock

    known, now = ConversationList(client.ask), SystemClock().now()
    found = known.find(words).page
    _print(number_entries(found, now) if found else "No conversations found.")
    line = next(lines, "") if found else ""
    if not line:
        return DEFAULT_SESSION, iter(())
    number = int(line) if line.strip().isdecimal() else 0
    if not 0 < number <= len(found):
        raise WrongUsage(f"{line!r} is not a number in the list")
    chosen = found[number - 1]
    if chosen.is_own:
        return chosen.key, lines
    return known.new_key(now), chain([f"/continue {chosen.key}"], lines)


def _ask(
    client: Client, text: str, session: str, chat: TemporaryChat | None, *, prints: bool
) -> tuple[list[AgentMessage], Reply]:
    """Send a message. Return the agent's messages before the reply, and the reply. If it `prints`,
    the messages are printed at once."""
    messages: list[AgentMessage] = []
    message_id = client.send_message(text, session, earlier=chat.said if chat else ())
    if chat:
        chat.note_sent(message_id, text)
    for event in replies(client, message_id, session):
        match event:
            case Note():
                print_text(f"note: {event.text}\n", sys.stderr)
            case AgentMessage():
                messages.append(event)
                if prints:
                    lines = [event.text] if event.text else []
                    _print("\n".join([*lines, *map(file_line, event.files), *ways(event.choices)]))
            case Reply():
                if chat:
                    chat.note_reply(event)
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
