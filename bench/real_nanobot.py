"""A person who uses a nanobot in another process through the terminal, the API and the page."""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from bench.llama import PATIENCE, Exchange, LlamaServer, Raw, Recorder
from bench.startup import NANOBOT, running_gateway
from nanobot.cli.client import Client
from nanobot_cli.text import question_of
from nanobot_cli.wire import Accepted, AgentMessage, ChatEvent, Delta, Note, Refused, Reply
from tests.ports import free_port

MARKUP = re.compile(
    r"</?tools?>|</?tool_call|<function=|\[TOOL_CALLS\]|<\|\w|<｜|</?think>"
    r'|\{\s*"name"\s*:\s*"\w+",\s*"(?:arguments|parameters)"'
)
"""Markup that people must not see."""
_UNREACHED = re.compile("cannot be reached|not reachable|out of reach", re.IGNORECASE)
DEAD, SHOWN, PREVIEWED = "dead conversation", "markup shown", "markup in the preview"
UNREACHED = "a false “cannot be reached”"
FORBIDDEN = (DEAD, SHOWN, PREVIEWED, UNREACHED)


@dataclass
class ChatTurn:
    """A message of the person, and everything shown until its final reply."""

    text: str
    events: list[ChatEvent] = field(default_factory=list)
    outcome: str = ""
    tools: Sequence[str] = ()

    @property
    def reply(self) -> str:
        """The answer that stays in the chat."""
        kept = [one.text for one in self.events if isinstance(one, AgentMessage | Reply)]
        return "\n".join(filter(None, kept))

    @property
    def preview(self) -> str:
        """Everything shown while the answer was streamed."""
        return "".join(one.text for one in self.events if isinstance(one, Delta))


class Talk:
    """The owner in one conversation at the terminal."""

    def __init__(self, home: Path, session: str) -> None:
        self.session = session
        self._client = Client(home)

    def say(self, text: str, *, stop_after: int = 0) -> ChatTurn:
        """Send a message and wait for its final reply.

        Send /stop after `stop_after` characters of a preview, if any. Questions of nanobot are
        answered with no."""
        said, stopping = ChatTurn(text), False
        number = self._client.send_message(text, self.session, stream=True)
        deadline = time.monotonic() + PATIENCE
        while not said.outcome and time.monotonic() < deadline:
            select.select([self._client], [], [], 1)
            for event in self._client.read_events():
                if event.id != number:
                    continue
                self._take(event, said)
            if stop_after and not stopping and len(said.preview) >= stop_after:
                stopping = bool(self._client.send_message("/stop", self.session))
        said.outcome = said.outcome or "silent"
        return said

    def _take(self, event: ChatEvent, said: ChatTurn) -> None:
        said.events.append(event)
        if isinstance(event, AgentMessage) and (question := question_of(event)) is not None:
            self._client.send_message(question.no.value, self.session)
        elif isinstance(event, Refused):
            said.outcome = "refused"
        elif isinstance(event, Reply):
            said.outcome, said.tools = event.outcome, event.tools


class RealNanobot:
    """A nanobot that was set up as by a person, and the messages of one scenario."""

    def __init__(
        self, home: Path, server: LlamaServer, recorder: Recorder, zone: str, kept: Path
    ) -> None:
        self.home, self.server, self.recorder, self._zone = home, server, recorder, zone
        self.workspace, self._port, self._kept = home / "workspace", free_port(), kept
        self._gateway = ExitStack()

    def __enter__(self) -> RealNanobot:
        self.begin()
        began = time.monotonic()
        url = f"http://127.0.0.1:{self.recorder.port}/v1"
        model = ("--base-url", url, "--model-name", self.server.model)
        person = ("--owner-name", "Ada", "--timezone", self._zone)
        done = self.run("onboard", "--non-interactive", *model, *person)
        for key, value in (
            ("model.temperature", "0"),
            ("http.port", str(self._port)),
            ("channels.api.enabled", "true"),
            ("channels.web.enabled", "true"),
        ):
            self.run("config", "set", key, value, "--yes")
        took = f"onboard took {time.monotonic() - began:.0f} s\n"
        (self._kept / "onboard.txt").write_text(took + "\n".join([json.dumps(done), *self.notes]))
        if not (self.home / "config.yaml").exists():
            raise RuntimeError(f"it could not be set up: {self.notes}")
        environ = {**os.environ, "NANOBOT_HOME": str(self.home)}
        self._gateway.enter_context(running_gateway(environ, NANOBOT))
        return self

    def __exit__(self, *_: object) -> None:
        self._gateway.close()
        with suppress(OSError):
            shutil.copy(self.home / "logs" / "nanobot.log", self._kept)

    def begin(self) -> None:
        """Begin a new scenario once the work of the previous one is over."""
        self.recorder.settle()
        self.said: list[ChatTurn] = []
        self.notes: list[str] = []
        self._first = len(self.recorder.exchanges)

    def talk(self) -> Talk:
        """Begin a new conversation."""
        return Talk(self.home, f"cli:{uuid4().hex[:8]}")

    def say(self, talk: Talk, text: str, stop_after: int = 0) -> ChatTurn:
        """Send a message and add it to the transcript."""
        self.said.append(talk.say(text, stop_after=stop_after))
        return self.said[-1]

    def close_conversation(self, talk: Talk) -> None:
        """Have the conversation stored in memory, and wait until that is done."""
        self.say(talk, "/new")
        self.recorder.settle()

    def run(self, *arguments: str) -> Any:
        """Run a command with --json and return its output, or None if it fails."""
        command = [NANOBOT, "--home", str(self.home), *arguments, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self.notes.append(f"{' '.join(arguments)}: {done.stderr.strip()}")
        return json.loads(done.stdout) if done.stdout and not done.returncode else None

    def facts(self) -> str:
        """Return the long-term files about the person."""
        files = ("USER.md", "memory/MEMORY.md")
        return "\n".join((self.workspace / name).read_text() for name in files)

    def history(self, session: str) -> list[Mapping[str, Any]]:
        """Return the history entries of a conversation."""
        path = self.workspace / "memory" / "history.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [one for one in map(json.loads, lines) if one.get("session") == session]

    def exchanges(self) -> Sequence[Exchange]:
        """The requests of this scenario."""
        return self.recorder.exchanges[self._first :]

    def tokens(self) -> tuple[int, int]:
        """Return the server's token counts of all prompts and answers in this scenario."""
        used = [one.usage for one in self.exchanges()]
        return sum(one[0] for one in used), sum(one[1] for one in used)

    def find_request(self, text: str) -> Exchange | None:
        """Return the first request for a message of the person, or None."""
        return next((one for one in self.exchanges() if one.asks(text[:60])), None)

    def direct_requests(self, exchange: Exchange) -> Iterator[Mapping[str, Any]]:
        """Yield the request as it was sent, then one with only the person's words."""
        yield exchange.request
        asked = [said.text for said in self.said if exchange.asks(said.text[:60])]
        if asked:
            system = exchange.request["messages"][:1]
            plain = [*system, {"role": "user", "content": asked[-1]}]
            yield {**exchange.request, "messages": plain}

    def find_instructed(self, words: str) -> Exchange | None:
        """Return the last request whose instructions begin with these words, or None."""
        found = [one for one in self.exchanges() if one.begins(words)]
        return found[-1] if found else None

    def by_api(self, text: str) -> ChatTurn:
        """Send a message through the API for other programs."""
        key = self.run("api", "keys", "add", f"bench{uuid4().hex[:6]}")["key"]
        body = {
            "model": "nanobot",
            "metadata": {"session_id": "bench"},
            "messages": [{"role": "user", "content": text}],
        }
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        answer = self._http("POST", "/v1/chat/completions", json.dumps(body), headers)
        content = json.loads(answer.read())
        reply = str(content["choices"][0]["message"]["content"]) if "choices" in content else ""
        outcome = "done" if reply else str(content)
        self.said.append(ChatTurn(text, [Reply(text=reply)], outcome))
        return self.said[-1]

    def by_page(self, text: str) -> ChatTurn:
        """Send a message on the page like a signed-in browser."""
        said = ChatTurn(text)
        self.said.append(said)
        link = str(self.run("web", "--no-open")["url"]).partition(str(self._port))[2]
        signed_in = self._http("GET", link)
        cookie = {"Cookie": str(signed_in.headers["Set-Cookie"]).partition(";")[0]}
        page = self._http("GET", "/chat", None, {**cookie, "Accept": "text/html"}).read().decode()
        token = re.findall(r'name="form-token" content="([0-9a-f]+)"', page)[0]
        begun = self._http("GET", "/chat/new", None, cookie)
        query = urlsplit(str(begun.headers["Location"])).query
        chat, event = parse_qs(query)["c"][0], uuid4().hex
        live = self._http("GET", f"/live?c={chat}&after=0", None, cookie)
        live.readline()
        own = {"X-Form-Token": token, "Origin": f"http://127.0.0.1:{self._port}"}
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        sent = "&".join(f"{k}={v}" for k, v in (("c", chat), ("event", event), ("text", text)))
        self._http("POST", "/chat/send", sent.replace(" ", "+"), {**cookie, **own, **form})
        while line := live.readline():
            heard = json.loads(line[6:]) if line.startswith(b"data: ") else {}
            if heard.get("kind") == "delta":
                said.events.append(Delta(text=heard["text"]))
            if f"web:{event}" in heard.get("events", ()):
                said.outcome = heard["outcome"]
                break
        shown = (self.run("sessions", "show", chat) or {}).get("messages", ())
        answers = [str(one["content"]) for one in shown if one["role"] == "assistant"]
        said.events.append(Reply(text="\n".join(answers)))
        return said

    def _http(
        self, method: str, path: str, body: str | None = None, headers: Mapping[str, str] = {}
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        connection.request(method, path, body, dict(headers))
        return connection.getresponse()

    def flags(self) -> list[str]:
        """Return faults of nanobot that the model does not excuse."""
        found = []
        for said in self.said:
            shown = [
                one.text for one in said.events if isinstance(one, AgentMessage | Reply | Note)
            ]
            if any(MARKUP.search(text) for text in shown):
                found.append(SHOWN)
            elif MARKUP.search(said.preview):
                found.append(PREVIEWED)
            unreached = said.outcome == "waiting" or any(map(_UNREACHED.search, shown))
            if unreached and self.server.is_well():
                found.append(UNREACHED)
            if said.outcome not in ("done", "stopped"):
                found.append(f"a turn {said.outcome}")
        return list(dict.fromkeys(found))


def transcript(nanobot: RealNanobot, raw: Raw | None) -> str:
    """Return the messages of a scenario, and the direct answer of the server."""
    lines = list[str]()
    for said in nanobot.said:
        lines.append(f"**{_cut(said.text)}**\n")
        lines += [f"- {type(one).__name__}: {_cut(str(one))}" for one in said.events if _tells(one)]
        lines.append(f"- preview: {_cut(said.preview)!r}\n- outcome: {said.outcome}\n")
    if raw is not None:
        lines.append(f"**Directly**\n\n{raw.text}\n\ncalls ({raw.form}): {raw.calls}\n")
    return "\n".join(lines)


def _tells(event: ChatEvent) -> bool:
    return not isinstance(event, Delta | Accepted)


def _cut(text: str) -> str:
    return text if len(text) < 2_000 else f"{text[:500]} … {len(text):,} characters"
