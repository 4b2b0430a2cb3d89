"""Sign-in at a platform that requires a person, in a terminal or on the page.

For the page, the gateway itself signs in while the supervisor lends it the channel. The code to
scan is only in memory, until it is scanned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict

from nanobot.channel import Login, LoginRequest, Operation
from nanobot.clock import Clock
from nanobot.commands import text_argument
from nanobot.config.channels import logins, options_of
from nanobot.config.settings import Settings
from nanobot.errors import NanobotError
from nanobot.gateway.channels import Supervisor
from nanobot.tasks import Background


def login_of(name: str) -> Login:
    """Return the sign-in of a channel. Raises `NanobotError` if it has none."""
    found = logins()
    if name not in found:
        can = ", ".join(sorted(found)) or "none"
        raise NanobotError(
            f"the channel {name!r} does not require a sign-in", hint=f"Channels that do: {can}."
        )
    sign_in: Login = found[name].load()
    return sign_in


def login_request(
    settings: Settings,
    name: str,
    say: Callable[[str], None],
    clock: Clock,
    *,
    number: str = "",
    show_code: Callable[[str], None] | None = None,
) -> LoginRequest:
    """Return the request for signing in to a channel. Raises `NanobotError` if it is not set up."""
    enabled = name in settings.channels and settings.channels[name].enabled
    return LoginRequest(
        options_of(settings.channels, name),
        settings.data_folder / "state" / "channels" / name,
        say,
        clock,
        number,
        enabled and bool(settings.owner.get(name)),
        show_code,
    )


class _SignIn(Struct):
    """A sign-in on the page, with its last text and the code to scan, if any."""

    state: Literal["waiting", "done", "failed"] = "waiting"
    text: str = ""
    code: str = ""

    def say(self, text: str) -> None:
        self.text, self.code = text, ""

    def show_code(self, code: str) -> None:
        self.code = code


class SignIns:
    """The sign-ins of this gateway, for its page."""

    def __init__(
        self, settings: Settings, supervisor: Supervisor, clock: Clock, background: Background
    ) -> None:
        self._settings, self._supervisor, self._clock = settings, supervisor, clock
        self._background = background
        self._known: dict[str, _SignIn] = {}

    def table(self) -> Mapping[str, Operation]:
        return {"channels.sign_in": self._begin, "channels.signing_in": self._show}

    async def _show(self, _: Mapping[str, object]) -> dict[str, object]:
        """Return the enabled channels that have a sign-in, each with its progress, or None if not
        started."""
        names = [name for name in logins() if name in self._supervisor.states]
        known = ((name, self._known.get(name)) for name in names)
        return {"channels": {name: one and asdict(one) for name, one in known}}

    async def _begin(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Sign in to the channel `name`, unless that is already running."""
        name = text_argument(arguments, "name")
        sign_in = login_of(name)
        known = self._known.get(name)
        if known is None or known.state != "waiting":
            if not (await self._supervisor.lend({"name": name}))["lent"]:
                raise NanobotError(f"the channel {name} is not enabled")
            new = self._known[name] = _SignIn()
            self._background.start(self._run(name, sign_in, new), name=f"sign in to {name}")
        return {"name": name}

    async def _run(self, name: str, sign_in: Login, shown: _SignIn) -> None:
        try:
            request = login_request(
                self._settings, name, shown.say, self._clock, show_code=shown.show_code
            )
            await sign_in(request)
            shown.state = "done"
        except NanobotError as error:
            shown.say(error.for_people())
        finally:
            shown.code = ""
            if shown.state == "waiting":
                shown.state = "failed"
        await self._supervisor.take_back({"name": name})  # not at the gateway's end
