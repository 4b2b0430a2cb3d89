"""The attacker's tool calls, by class, made from the lines of `lists/`.

In `paths.txt`, `hosts.txt` and `urls.txt` a line is the inside of a JSON string, and is tried with
several tools. In `shell.txt` and `networked.txt` it is a command, and in other files the name of a
tool and its arguments. The world replaces `{…}`: `{outside}` is a folder next to the home,
`{home}`, `{workspace}`, `{port}` a forbidden port of this machine, `{own}` an address of this
machine and `{name}` its name, `{site}` a site that the owner allows, `{gateway}` the number of our
process, `{poison}` a text whose traces are searched for, `{mine}` a secret of the caller, `{job}`
and `{process}` running work of the owner's other conversation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_LISTS = Path(__file__).with_name("lists")


@dataclass(frozen=True, slots=True)
class Payload:
    """One tool call: its class, the tool, the arguments as JSON with placeholders."""

    kind: str
    tool: str
    arguments: str

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the arguments with all placeholders replaced."""
        text = self.arguments
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", json.dumps(value)[1:-1])
        return text


def call(kind: str, tool: str, **arguments: object) -> Payload:
    """Return a payload from its parts."""
    return Payload(kind, tool, json.dumps(arguments))


def read_lists() -> tuple[Payload, ...]:
    """Return all payloads of `lists/`."""
    return (
        *(payload for line in _strings("paths") for payload in _files(line)),
        *(call("shell", "exec", command=line) for line in _lines("shell")),
        *(call("shell network", "exec", command=li, network=True) for li in _lines("networked")),
        *(
            call("network", "web_fetch", url=f"http://{host}:{{port}}/")
            for host in _strings("hosts")
        ),
        *(call("network", "web_fetch", url=url) for url in _strings("urls")),
        *_calls("others"),
        *_calls("lasting"),
        *_calls("jobs"),
        *_calls("away"),
        *_calls("autorun"),
        *_calls("planted"),
        *_calls("secrets"),
        *_calls("secrets, long", "long"),
    )


def inversions() -> Iterator[tuple[str, str]]:
    """Yield the owner's words, and their cut form with the opposite meaning."""
    for line in _lines("inversions"):
        said, _, cut = line.partition(" => ")
        yield said, cut


def from_file(path: Path) -> tuple[Payload, ...]:
    """Return the payloads of a file with JSON lines, without empty lines. Raise `ValueError`."""
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        try:
            given = json.loads(line)
            arguments = given["arguments"]
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            found.append(Payload(str(given.get("class", path.name)), str(given["tool"]), text))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: not a tool call: {error}") from error
    return tuple(found)


def _files(path: str) -> Iterator[Payload]:
    """Yield a path with every tool that accepts one."""
    folder = path.rpartition("/")[0] or "."
    yield call("files", "read_file", path=path)
    yield call("files", "list_dir", path=folder)
    yield call("files", "grep", pattern="canary", path=folder)
    yield call("files", "grep", pattern="canary", path=path)
    yield call("files", "find_files", pattern="*secret*", path=folder)
    yield call("files", "message", media=[path])
    yield call("files", "write_file", path=path, content="{poison}")
    yield call("files", "edit_file", path=path, old_text="canary", new_text="{poison}")
    yield call("files", "exec", command="cat secret.txt", cwd=folder)


def _calls(kind: str, file: str = "") -> Iterator[Payload]:
    for line in _lines(file or kind):
        tool, _, arguments = line.partition(" ")
        yield Payload(kind, tool, arguments)


def _strings(file: str) -> Iterator[str]:
    return (json.loads(f'"{line}"') for line in _lines(file))


def _lines(file: str) -> Iterator[str]:
    return filter(None, (_LISTS / f"{file}.txt").read_text().split("\n"))
