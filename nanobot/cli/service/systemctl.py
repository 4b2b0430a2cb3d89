"""Asking systemd: the one place that runs its programs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nanobot.cli.service.unit import Unit
from nanobot.errors import NanobotError

_SECONDS = 240.0
"""Longer than a start may take."""

_CANNOT_EXECUTE = 203
_UP = ("running", "degraded", "starting", "initializing", "maintenance", "stopping")
_FACTS = (
    "ActiveState", "SubState", "UnitFileState", "MainPID", "NRestarts", "Result",
    "ExecMainStatus", "ActiveEnterTimestamp", "StatusText",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program said; `code` is its exit code."""

    code: int
    out: str
    error: str

    @property
    def last_line(self) -> str:
        """What it said last, for an error of ours."""
        lines = [line.strip() for line in (self.error or self.out).splitlines() if line.strip()]
        nothing = "it cannot be executed" if self.code == _CANNOT_EXECUTE else ""
        return lines[-1] if lines else nothing or f"exit code {self.code}"


class Systemd:
    """The manager of the machine, or that of the user who we are."""

    def __init__(self, *, system: bool) -> None:
        self._scope = () if system else ("--user",)

    @property
    def prefix(self) -> str:
        """How a person begins a command to it."""
        return " ".join(("systemctl", *self._scope))

    def expect_running(self) -> None:
        """Raise where nothing can be asked of it, with what to do instead."""
        foreground = "`nanobot gateway` runs in the foreground, under any other supervisor as well."
        if shutil.which("systemctl") is None:
            raise NanobotError("there is no systemd on this machine", hint=foreground)
        answer = self._run("systemctl", ("is-system-running",))
        if answer.out.strip() in _UP:
            return
        if answer.out.strip() == "offline" or "not been booted" in answer.error:
            raise NanobotError("this machine was not started by systemd", hint=foreground)
        if not self._scope:
            raise NanobotError(f"systemd does not answer: {answer.last_line}", hint=foreground)
        raise NanobotError(
            f"systemd has no manager for you: {answer.last_line}",
            hint=f"Log in as this user itself, not by `su`; or `sudo loginctl enable-linger "
            f"{_me()}` starts one. `sudo nanobot service install --system` needs none.",
        )

    def tell(self, *arguments: str) -> None:
        """Have something done; raises `NanobotError` where it refuses."""
        answer = self._run("systemctl", arguments)
        if answer.code:
            raise NanobotError(f"{self.prefix} {' '.join(arguments)}: {answer.last_line}")

    def attempt(self, *arguments: str) -> Answer:
        """Have something done that may fail."""
        return self._run("systemctl", arguments)

    def facts(self, unit: str) -> Mapping[str, str]:
        """What it knows of a unit, by the names of its properties."""
        answer = self._run("systemctl", ("show", unit, f"--property={','.join(_FACTS)}"))
        pairs = (line.partition("=") for line in answer.out.splitlines())
        return {key: value for key, _, value in pairs}

    def trial(self, unit: Unit) -> Answer:
        """Run the unit's program for a moment, with its hardening, to say its version."""
        options = [f"--property={key}={value}" for key, value in unit.hardening]
        if unit.user:
            options.append(f"--property=User={unit.user}")
        words = ("--quiet", "--wait", "--collect", "--pipe", *options, f"--setenv=PATH={unit.path}")
        return self._run("systemd-run", (*words, *unit.command[:-1], "--version"))

    def journal(self, unit: str, count: int, *more: str) -> tuple[str, ...]:
        """The command that prints the last lines of the journal about a unit."""
        return (
            "journalctl", *self._scope, "--unit", unit, "--lines", str(count),
            "--no-pager", "--quiet", *more,
        )  # fmt: skip

    def last_words(self, unit: str, count: int = 6) -> str:
        """The last lines of the journal about a unit; empty where there is none."""
        program, *arguments = self.journal(unit, count, "--output=cat")
        if shutil.which(program) is None:
            return ""
        said = self._run(program, arguments, scoped=False).out
        return "".join(f"{plain(line)}\n" for line in said.splitlines())

    def _run(self, program: str, arguments: Sequence[str], *, scoped: bool = True) -> Answer:
        words = (program, *(self._scope if scoped else ()), *arguments)
        try:
            done = subprocess.run(  # noqa: S603 - our words, and no shell
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_SECONDS,
                env=environment(),
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NanobotError(f"{program} cannot be used: {error}") from error
        return Answer(done.returncode, done.stdout, done.stderr)


def plain(message: str) -> str:
    """A message of the journal for people: a line of our log as `nanobot logs` shows it."""
    from nanobot.logs.output import LogLine

    own = LogLine.parse(message.encode("utf-8", "replace"))
    return own.to_text() if own else message


def environment() -> dict[str, str]:
    """Ours, with where the user's manager is: `su` and `sudo` leave that out."""
    runtime = Path("/run/user", str(os.geteuid()))
    added = {"XDG_RUNTIME_DIR": str(runtime)} if runtime.is_dir() else {}
    return {**added, **os.environ, "LC_ALL": "C.UTF-8"}


def _me() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name
