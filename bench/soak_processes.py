"""The processes of a soak: the programs around the gateway, and the watched gateway."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nanobot.cli.client import Client
from tests.doubles.telegram import TOKEN

_CONFIG = """
model:
  name: soak
  base_url: {model}
  timeout_seconds: 3
  retry_seconds: 20
  context_window: 32000
  max_completion_tokens: 2000
memory: {{window: 40}}
dream: {{cron: every 3m}}
limits: {{messages_per_minute: 1000}}
tools:
  approval: {{fetch: allow, exec: allow, persist: allow}}
  web: {{allow_hosts: ["127.0.0.1:9"]}}
owner: {{telegram: {owners}}}
channels:
  telegram:
    enabled: true
    token: "{token}"
    base_url: {telegram}
    groups: mention
    allow_from: {friends}
    allow_groups: {groups}
"""


class Program:
    """A process that prints its address, and answers lines with lines of JSON, as a context
    manager."""

    def __init__(self, module: str, **options: object) -> None:
        given = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        command = [sys.executable, "-m", module, *given]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.address = self._line()

    def ask(self, line: str) -> dict[str, object]:
        """Send a line and return the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        answer = json.loads(self._line())
        assert isinstance(answer, dict)
        return answer

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextlib.contextmanager
def running_gateway(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a gateway, and wait until it is ready. Its log is in the home's folder."""
    environ = {name: value for name, value in os.environ.items() if "NANOBOT" not in name}
    environ["NANOBOT_HOME"] = str(home)
    log = home.with_name("gateway.log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "nanobot", "gateway"],
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=output,
        )
    try:
        until_ready(process, home)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def until_ready(process: subprocess.Popen[bytes], home: Path) -> None:
    """Wait until the gateway answers on its socket."""
    while process.poll() is None:
        if (home / "state" / "gateway.sock").exists():
            return
        time.sleep(0.05)
    raise SystemExit(f"the gateway ended with {process.returncode}; see {home.parent}/gateway.log")


def configure(home: Path, model: str, telegram: str, people: Sequence[int]) -> None:
    """Write the configuration of a home for these chats. Half of the private ones are the
    owner's."""
    text = _CONFIG.format(
        model=model,
        telegram=telegram,
        token=TOKEN,
        owners=json.dumps([str(chat) for chat in people[::2] if chat > 0]),
        friends=json.dumps([str(chat) for chat in people[1::2] if chat > 0]),
        groups=json.dumps({str(chat): ["*"] for chat in people if chat < 0}),
    )
    home.mkdir(mode=0o700)
    (home / "config.yaml").touch(0o600)
    (home / "config.yaml").write_text(text)


def status_of(home: Path) -> Mapping[str, object]:
    """Return the status of a running gateway."""
    with Client(home) as client:
        answer = client.ask("status", {})
    assert isinstance(answer, dict)
    return answer
