"""What an adapter can do for commands, each a function with an entry point of its own: sign in,
check, set up. An adapter brings those that make sense on its platform.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct, field

from nanobot.clock import Clock


class LoginRequest(Struct, frozen=True):
    """What signing in needs: the adapter's own settings (`options`), a folder (0700) for its state,
    and a person to talk to. `number` is a phone number in digits where they want a code to type in
    rather than one to scan. `is_set_up`: the settings are written already, so that nothing has to
    be said of them. While it lasts nothing else uses the account or the folder."""

    options: object
    state_folder: Path
    say: Callable[[str], None]
    clock: Clock
    number: str = ""
    is_set_up: bool = False


Login = Callable[[LoginRequest], Awaitable[None]]
"""Signs in at a platform that wants a person for it; found by entry point in the group
`nanobot.channel_logins`, by the name of the channel. Returns when it is done; raises
`NanobotError`."""


class CheckRequest(Struct, frozen=True):
    """What an adapter may look at for `nanobot doctor`: its own settings (`options`) and the folder
    of its state, which need not be there. A gateway may be running with both: nothing is changed.
    What is asked of a platform must not take longer than `seconds`."""

    options: object
    state_folder: Path
    clock: Clock
    seconds: float


class CheckFinding(Struct, frozen=True):
    """One thing that was found; `hint` says what to do about it."""

    state: Literal["ok", "warn", "fail"]
    text: str
    hint: str = ""


Check = Callable[[CheckRequest], Awaitable[Sequence[CheckFinding]]]
"""Finds out whether a channel can work; found by entry point in the group `nanobot.channel_checks`,
by the name of the channel. Texts hold no secrets."""


class Person(Protocol):
    """Who sets nanobot up. Texts are a sentence or a few; the person's words come without the space
    around them. Where nobody is there to be asked, a default is taken, and asking for what has none
    raises `NanobotError`."""

    def say(self, text: str) -> None:
        """Tell something."""

    async def ask(self, question: str, default: str = "", *, secret: bool = False) -> str:
        """What the person answers, or the default for no answer. A `secret` is not shown."""

    async def confirm(self, question: str, *, default: bool = True) -> bool:
        """Yes or no."""

    async def choose(self, question: str, choices: Sequence[str], default: int = 0) -> int:
        """Which of the choices, as an index."""


class SetupRequest(Struct, frozen=True):
    """What setting a channel up needs: the person, the adapter's present settings (`options`, None
    where it has none) and the owner's present ids there, and what is `given` already, by the keys
    of the adapter's settings, which is not asked for. `attended`: somebody is there to be asked.
    `test`: what is given is tried out at the platform."""

    person: Person
    options: object | None
    owners: Sequence[str]
    given: Mapping[str, str]
    clock: Clock
    attended: bool = True
    test: bool = True


class SetupResult(Struct, frozen=True):
    """What is to be written. `values` and `secrets` have keys of the adapter's settings; what is
    not in them stays as it is, and so do the owner's ids where `owners` is empty. `who` is the
    account on the platform, for people. `sign_in`: the channel's `Login` comes next."""

    values: Mapping[str, str | bool] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    owners: Sequence[str] = ()
    who: str = ""
    sign_in: bool = False


Setup = Callable[[SetupRequest], Awaitable[SetupResult | None]]
"""Asks a person for what a channel needs, and tries it out; None where they leave it as it is.
Found by entry point in the group `nanobot.channel_setups`, by the name of the channel. Writes
nothing. Raises `NanobotError`."""
