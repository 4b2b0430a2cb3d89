"""A Dockerfile as values. Pure.

Invariants: an unknown instruction is an error with its line and never skipped, so a Dockerfile that
passes was executed in full. Variables are filled in later (`words.expand`), because their values
depend on the steps before."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from scripts.clean_room.words import command, json_words, split

_FLAG = re.compile(r"--([a-z-]+)(?:=(\S+))?(?:\s+|$)")
_COMMENT = re.compile(r"\s*#")
_SECONDS = re.compile(r"(\d+)(ms|s|m|h)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class DockerfileError(Exception):
    """A line that Docker would reject, or that is not supported here."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")


@dataclass(frozen=True, slots=True)
class Arg:
    """`ARG name` or `ARG name=default`."""

    name: str
    default: str


@dataclass(frozen=True, slots=True)
class Values:
    """`ENV` or `LABEL`, with its text before variables are filled in."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Run:
    """`RUN`: words to execute."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Copy:
    """`COPY`: from the context, or from the stage `stage`."""

    sources: tuple[str, ...]
    target: str
    stage: str
    owner: str
    mode: str


@dataclass(frozen=True, slots=True)
class Place:
    """`WORKDIR`, `USER` or `VOLUME` with their one word."""

    kind: str
    word: str


@dataclass(frozen=True, slots=True)
class Words:
    """`ENTRYPOINT` or `CMD`."""

    kind: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Healthcheck:
    """Docker's check whether the container works. Times are in seconds."""

    words: tuple[str, ...]
    interval: float = 30.0
    timeout: float = 30.0
    start_period: float = 0.0
    retries: int = 3


Step = Arg | Values | Run | Copy | Place | Words | Healthcheck


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step with its position and its text, in one line."""

    line: int
    text: str
    step: Step


@dataclass(frozen=True, slots=True)
class Stage:
    """A `FROM` and its instructions."""

    base: str
    name: str
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """The whole file. `arguments` come before the first `FROM` and apply only to those lines."""

    arguments: tuple[Arg, ...]
    stages: tuple[Stage, ...]


def parse(text: str) -> Dockerfile:
    """Parse a Dockerfile. Raise `DockerfileError`."""
    arguments: list[Arg] = []
    stages: list[Stage] = []
    for number, line in _logical_lines(text):
        name, _, rest = line.partition(" ")
        name, rest = name.upper(), rest.strip()
        if name == "FROM":
            stages.append(_stage(number, rest))
            continue
        instruction = Instruction(number, " ".join(line.split()), _step(number, name, rest))
        if stages:
            last = stages[-1]
            stages[-1] = Stage(last.base, last.name, (*last.instructions, instruction))
        elif isinstance(instruction.step, Arg):
            arguments.append(instruction.step)
        else:
            raise DockerfileError(number, f"{name} before the first FROM")
    if not stages:
        raise DockerfileError(1, "there is no FROM")
    return Dockerfile(tuple(arguments), tuple(stages))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines without comments, with continuations joined, each with the number of its first
    line."""
    begun, parts = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if _COMMENT.match(line) or not (line.strip() or parts):
            continue
        begun = begun or number
        if line.rstrip().endswith("\\"):
            parts += line.rstrip()[:-1]
            continue
        yield begun, (parts + line).strip()
        begun, parts = 0, ""
    if parts:
        raise DockerfileError(begun, "the last line is continued")


def _stage(line: int, rest: str) -> Stage:
    words = rest.split()
    if len(words) == 1:
        return Stage(words[0], "", ())
    if len(words) == 3 and words[1].upper() == "AS":
        return Stage(words[0], words[2].lower(), ())
    raise DockerfileError(line, f"not supported: FROM {rest}")


def _step(line: int, name: str, rest: str) -> Step:
    reader = _READERS.get(name)
    if reader is None:
        raise DockerfileError(line, f"{name} is not supported")
    if not rest:
        raise DockerfileError(line, f"{name} is empty")
    try:
        return reader(name, rest)
    except ValueError as error:
        raise DockerfileError(line, f"{name}: {error}") from error


def _flags(rest: str, known: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Return the flags before the rest. `known` has the defaults."""
    flags = dict(known)
    while found := _FLAG.match(rest):
        name, value = found[1], found[2] or ""
        if name not in known:
            raise ValueError(f"--{name} is not supported")
        flags[name], rest = value, rest[found.end() :]
    return flags, rest


def _arg(_: str, rest: str) -> Arg:
    name, _, default = rest.partition("=")
    (value,) = split(default) or ("",)
    return Arg(name, value)


def _values(name: str, rest: str) -> Values:
    if "=" not in rest:
        raise ValueError("write name=value")
    return Values(name, rest)


def _run(_: str, rest: str) -> Run:
    if rest.startswith(("--", "<<")):
        raise ValueError("flags and here-documents are not supported")
    return Run(command(rest))


def _copy(_: str, rest: str) -> Copy:
    flags, rest = _flags(rest, {"from": "", "chown": "", "chmod": "", "link": ""})
    words = json_words(rest) or split(rest)
    if len(words) < 2:
        raise ValueError("requires a source and a target")
    return Copy(words[:-1], words[-1], flags["from"], flags["chown"], flags["chmod"])


def _place(name: str, rest: str) -> Place:
    (word,) = json_words(rest) or split(rest)
    return Place(name, word)


def _words(name: str, rest: str) -> Words:
    return Words(name, command(rest))


def _healthcheck(_: str, rest: str) -> Healthcheck:
    defaults = {"interval": "30s", "timeout": "30s", "start-period": "0s", "retries": "3"}
    flags, rest = _flags(rest, defaults)
    kind, _, text = rest.partition(" ")
    if kind != "CMD":
        raise ValueError("write HEALTHCHECK … CMD …")
    return Healthcheck(
        command(text.strip()),
        interval=_seconds(flags["interval"]),
        timeout=_seconds(flags["timeout"]),
        start_period=_seconds(flags["start-period"]),
        retries=int(flags["retries"]),
    )


def _seconds(text: str) -> float:
    if not re.fullmatch(rf"(?:{_SECONDS.pattern})+", text):
        raise ValueError(f"{text} is not a duration")
    return sum(int(number) * _UNITS[unit] for number, unit in _SECONDS.findall(text))


_READERS: Mapping[str, Callable[[str, str], Step]] = {
    "ARG": _arg,
    "CMD": _words,
    "COPY": _copy,
    "ENTRYPOINT": _words,
    "ENV": _values,
    "HEALTHCHECK": _healthcheck,
    "LABEL": _values,
    "RUN": _run,
    "USER": _place,
    "VOLUME": _place,
    "WORKDIR": _place,
}
