"""How the channel stands, in the words of a person: what helps, and what goes over by itself."""

from __future__ import annotations

from math import ceil

from nanobot.channel import ChannelHost
from nanobot.channel.health import HealthReporter
from nanobot.errors import ChannelOff
from nanobot_whatsapp.ids import id_of
from nanobot_whatsapp.linked.protocol import Me, State

LOGIN = "nanobot channels login whatsapp"
_LINK = f"Run `{LOGIN}` and scan the code with the phone."


class Standing:
    """Tells `nanobot status`. Trouble with WhatsApp and with the disk come and go independently."""

    def __init__(self, host: ChannelHost) -> None:
        self._host, self._health = host, HealthReporter("whatsapp", host)
        self._is_new = True

    def helper_failed(self, reason: str) -> None:
        """The helper ended and is to be started again."""
        self._health.report("connection", f"{reason} (it is started again)")

    def disk(self, reason: str) -> None:
        """What keeps messages from being stored; empty: nothing does."""
        if reason:
            self._health.report("disk", f"messages wait: {reason}")
        else:
            self._health.resolve("disk")

    def changed(self, state: State) -> bool:
        """The connection changed; whether it is open now. Raises `ChannelOff` where only a person
        can mend it."""
        if state.state == "open":
            self._opened(state.me)
            return True
        if state.state == "connecting":
            self._connecting()
            return False
        if (off := _off(state)) is not None:
            raise off
        self._health.report("connection", _trouble(state))
        return False

    def _opened(self, me: Me | None) -> None:
        self._is_new = False
        self._health.resolve("connection")
        if not self._health.problems:
            self._host.report("")  # that it was connecting
        if me is not None:
            id = id_of(me.number or me.lid)
            self._host.connected(f"{'+' if id.isdigit() else ''}{id} (linked)")

    def _connecting(self) -> None:
        """At the start this is no trouble, and later the trouble is what led to it."""
        if self._is_new and not self._health.problems:
            self._host.report("connecting to WhatsApp")


def _off(state: State) -> ChannelOff | None:
    """What only a person can mend."""
    detail = f": {state.detail}" if state.detail else ""
    match state.state:
        case "need_pairing":
            return ChannelOff("no WhatsApp account is linked", hint=_LINK)
        case "logged_out":
            return ChannelOff(f"WhatsApp has unlinked this device{detail}", hint=_LINK)
        case "banned" if state.retry_in is None:
            return ChannelOff(
                f"WhatsApp refuses this account{detail}",
                hint=f"See on the phone what it says about the account; once that is over, run "
                f"`{LOGIN}`, which starts the channel again.",
            )
    return None


def _trouble(state: State) -> str:
    """What passes by itself."""
    detail = f": {state.detail}" if state.detail else ""
    match state.state:
        case "replaced":
            return "another program uses the same linked device; stop it"
        case "banned":
            return f"WhatsApp refuses this account for {_span(state.retry_in or 0.0)}{detail}"
        case _:
            return f"WhatsApp cannot be reached{detail}"


def _span(seconds: float) -> str:
    return f"{ceil(seconds / 60)} min" if seconds < 7200 else f"{ceil(seconds / 3600)} h"
