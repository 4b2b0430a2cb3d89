"""The ways to run a command, each as the instructions for the program that does it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from nanobot.security.confine.spec import VARIABLE, Limits, Spec
from nanobot.security.confine.stage import RELAY_PORT
from nanobot.security.sandbox import system
from nanobot.security.sandbox.checks import refuse_unless_usable
from nanobot.security.sandbox.values import Confined, Kind, Launch, SandboxRefused

_PROGRAM = Path(__file__).parent.parent / "confine"
_DISK_MEGABYTES = 512
_PROXY = f"http://127.0.0.1:{RELAY_PORT}"
_NOWHERE = "localhost,127.0.0.1,::1"


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """Namespaces: a world with nothing else in it. `program` is bubblewrap's."""

    program: str
    private: tuple[Path, ...] = ()
    kind: ClassVar[Kind] = "bubblewrap"
    notes: ClassVar[str] = ""

    def launch(
        self, command: Sequence[str], confined: Confined, relay: Path | None = None
    ) -> Launch:
        """See `Sandbox`."""
        refuse_unless_usable(confined, self.private)
        if (relay is not None) != (confined.network == "relay"):
            raise SandboxRefused("a command with network needs a relay, and one without has none")
        environment = {"HOME": "/tmp/home", "TMPDIR": "/tmp", **_environment(confined)}  # noqa: S108
        spec = _spec(self.kind, confined, environment)._replace(
            readable=(*system.readable(names=False), *map(str, confined.extra_read_only)),
            borrowed=_borrowed(),
            links=system.links(),
            bubblewrap=self.program,
            relay=str(relay or ""),
        )
        return _launch(spec, command)


@dataclass(frozen=True, slots=True)
class Landlock:
    """Landlock and a filter of system calls, on the system as it is. `temporary` is where commands
    get a private folder each."""

    temporary: Path
    private: tuple[Path, ...] = ()
    kind: ClassVar[Kind] = "landlock"
    notes: ClassVar[str] = (
        "No network, no sockets, no /proc; modes and times of files stay as they are: run "
        "scripts with `sh FILE`. New files go into folders such as work/, not beside a protected "
        "file or a .git."
    )

    def launch(
        self, command: Sequence[str], confined: Confined, relay: Path | None = None
    ) -> Launch:
        """See `Sandbox`."""
        refuse_unless_usable(confined, self.private)
        if relay is not None or confined.network != "none":
            raise SandboxRefused(
                "commands have no network in this sandbox",
                hint="It needs bubblewrap (`nanobot doctor` says how); web_fetch works.",
            )
        spec = _spec(self.kind, confined, _environment(confined))._replace(
            readable=(*system.readable(names=True), *map(str, confined.extra_read_only)),
            temporary=str(self.temporary),
        )
        return _launch(spec, command)


@dataclass(frozen=True, slots=True)
class Unconfined:
    """No sandbox, by the owner's choice: limits, a small environment, and nothing left behind."""

    kind: ClassVar[Kind] = "none"
    notes: ClassVar[str] = ""

    def launch(
        self, command: Sequence[str], confined: Confined, relay: Path | None = None
    ) -> Launch:
        """See `Sandbox`. A relay is of no use, for the network is there."""
        home = os.path.expanduser("~")  # noqa: PTH111 - `Path.home` raises where there is none
        environment = {"HOME": home, **_environment(confined)}
        return _launch(_spec(self.kind, confined, environment), command)


def _spec(kind: Kind, confined: Confined, environment: dict[str, str]) -> Spec:
    return Spec(
        kind=kind,
        workspace=str(confined.workspace),
        cwd=str(confined.cwd or confined.workspace),
        read_only=confined.read_only,
        hidden=confined.hidden,
        hide_git=confined.hide_git,
        readable=(),
        writable=tuple(map(str, confined.writable)),
        borrowed=(),
        links=(),
        environment=environment,
        limits=Limits(
            confined.memory_megabytes,
            confined.processes,
            confined.file_megabytes,
            _DISK_MEGABYTES,
        ),
        ledger=confined.ledger,
    )


def _environment(confined: Confined) -> dict[str, str]:
    """Small and fixed; nothing of ours is inherited."""

    fixed = {
        "PATH": system.PATH,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "USER": "agent",
        "LOGNAME": "agent",
    }
    if confined.network == "relay":
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            fixed |= {name: _PROXY, name.lower(): _PROXY}
        fixed |= {"NO_PROXY": _NOWHERE, "no_proxy": _NOWHERE, "NODE_USE_ENV_PROXY": "1"}
    return {**fixed, **confined.environment}


def _borrowed() -> tuple[str, ...]:
    """What the second half of the program runs on, as far as commands do not see it anyway."""
    own = (system.libraries(), str(_PROGRAM))
    return tuple(path for path in own if not Path(path).is_relative_to("/usr"))


def _launch(spec: Spec, command: Sequence[str]) -> Launch:
    start = (system.interpreter(), "-E", "-s", "-S", str(_PROGRAM), "start")
    passed = (spec.ledger,) if spec.ledger >= 0 else ()
    return Launch((*start, *command), {VARIABLE: spec.as_text()}, "/", passed)
