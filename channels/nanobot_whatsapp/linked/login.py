"""`nanobot channels login whatsapp`: links a WhatsApp account, with a person at the terminal.

The helper is installed where it is missing, started so that it may pair, and asked for nothing: it
says what to scan or to type in, and when it is done. What always holds: messages that arrive
meanwhile stay in the helper's spool for the gateway; what is printed names no secret but the code
itself, which is of no use once it was scanned or a minute has passed.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Sequence

from nanobot.channel import LoginRequest
from nanobot.channel.waiting import within
from nanobot.errors import NanobotError
from nanobot_whatsapp.ids import id_of
from nanobot_whatsapp.linked.hearing import HelperFailed
from nanobot_whatsapp.linked.helper import started
from nanobot_whatsapp.linked.install import find_node, install
from nanobot_whatsapp.linked.protocol import Change, Me, PairCode, Qr, State, Welcome
from nanobot_whatsapp.linked.qr import Screen
from nanobot_whatsapp.settings import WhatsAppSettings

PATIENCE_SECONDS = 600.0
"""How long a person may take."""

SETTLING_SECONDS = 10.0
"""How long an account that was just linked stays connected: the phone and WhatsApp exchange keys
with the new device first, and a phone that loses sight of it meanwhile calls the linking failed."""

_BETWEEN_DIGITS = re.compile(r"[\s+()./-]+")
_NUMBER = re.compile(r"[1-9][0-9]{6,14}")

_WHERE = "On the phone: WhatsApp > Settings (or ⋮) > Linked devices > Link a device"


async def login(request: LoginRequest) -> None:
    """Link an account, or say which one is linked. Raises `NanobotError` where it does not work."""
    coloured = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    await sign_in(request, Screen(request.say, is_terminal=coloured, size=shutil.get_terminal_size))


async def sign_in(request: LoginRequest, screen: Screen) -> None:
    """The same, on the given screen."""
    options = request.options
    if not isinstance(options, WhatsAppSettings):
        raise TypeError("the options are those of another channel")
    if options.transport != "linked":
        raise NanobotError(
            f"channels.whatsapp.transport is {options.transport}, where there is nothing to link",
            hint="Write linked there, or leave it out, to use WhatsApp as a linked device.",
        )
    number = digits_of(request.number) if request.number else ""
    node = await asyncio.to_thread(find_node, options.node)
    main = await install(request.state_folder, node, screen.say)
    welcome = Welcome(
        "code" if number else "qr", number, options.read_receipts, online=options.online
    )
    screen.say("Connecting to WhatsApp …")
    program = (str(node), str(main))
    dialogue = _Dialogue(screen, number)
    for _ in range(2):
        # An account that is linked no more is put aside by the helper; the next one may pair.
        if await dialogue.run(request, program, welcome):
            return
        screen.say("The account that was linked here is linked no more. Linking one anew …")
    raise NanobotError("WhatsApp does not take this device", hint="Try again in some minutes.")


def digits_of(number: str) -> str:
    """A phone number as WhatsApp has it: digits only, the country code first.

    Raises `NanobotError` for what is none.
    """
    digits = _BETWEEN_DIGITS.sub("", number).removeprefix("00")
    if not _NUMBER.fullmatch(digits):
        raise NanobotError(
            "--pair-code wants the phone number with its country code, in digits",
            hint="For a number in the United States: --pair-code 15550001111",
        )
    return digits


class _Dialogue:
    """What a person is told, step by step."""

    def __init__(self, screen: Screen, number: str) -> None:
        self._screen, self._number = screen, number
        self._asked = False
        self._trouble = ""

    async def run(self, request: LoginRequest, program: Sequence[str], welcome: Welcome) -> bool:
        """Run a helper until an account is linked; False where that on disk is linked no more."""
        async with started(request.state_folder, program, welcome, request.clock) as link:
            try:
                me = await within(request.clock, PATIENCE_SECONDS, self._until_open(link.states()))
            except TimeoutError:
                raise NanobotError(
                    f"no account was linked within {PATIENCE_SECONDS / 60:.0f} minutes",
                    hint=self._trouble or "Run this again when the phone is at hand.",
                ) from None
            if me is None:
                return False
            if self._asked:
                self._screen.say("Linked. Waiting for the phone to finish …")
                await request.clock.sleep(SETTLING_SECONDS)
        self._screen.say(_farewell(me, anew=self._asked, is_set_up=request.is_set_up))
        return True

    async def _until_open(self, changes: AsyncIterator[Change]) -> Me | None:
        async for change in changes:
            match change:
                case Qr(data=data):
                    self._show(data)
                case PairCode(code=code):
                    self._ask_to_type(code)
                case State(state="open", me=me):
                    return me or Me()
                case State(state="logged_out") if not self._asked:
                    return None
                case State():
                    self._tell(change)
        raise HelperFailed("the WhatsApp helper hung up")

    def _show(self, data: str) -> None:
        if not self._asked:
            self._asked = True
            self._screen.say(f"{_WHERE}\nScan this; it changes now and then:")
        try:
            self._screen.show(data)
        except ValueError as error:
            raise HelperFailed("the WhatsApp helper sent what no QR code can hold") from error

    def _ask_to_type(self, code: str) -> None:
        self._asked = True
        self._screen.say(
            f"{_WHERE}\n> Link with phone number instead.\n"
            f"Type this code on the phone with the number +{self._number}:\n\n    {code}\n"
        )

    def _tell(self, state: State) -> None:
        """What stands in the way. Raises `NanobotError` for what waiting does not mend."""
        detail = f" ({state.detail})" if state.detail else ""
        match state.state:
            case "banned":
                raise NanobotError(
                    f"WhatsApp refuses this account{detail}",
                    hint="See on the phone what it says about the account, and come back later.",
                )
            case "logged_out":
                raise NanobotError(
                    f"WhatsApp refused the new device{detail}",
                    hint="On the phone, see under Linked devices whether there are too many.",
                )
            case "replaced":
                raise NanobotError(
                    "another program is connected as this linked device",
                    hint="Is there a second nanobot, with a copy of this folder? End it first.",
                )
            case "backoff":
                trouble = f"WhatsApp is out of reach{detail}; trying again …"
                if trouble != self._trouble:
                    self._trouble = trouble
                    self._screen.say(trouble)
            case _:
                pass


def _farewell(me: Me, *, anew: bool, is_set_up: bool) -> str:
    number = id_of(me.number) if me.number else ""
    name = f" ({me.name})" if me.name else ""
    account = f"+{number}{name}" if number else me.lid or "the account"
    if not anew:
        return (
            f"Already linked: {account}. To link another account, first remove this device on the"
            " phone, under Linked devices."
        )
    if is_set_up:
        return f"Linked: {account}."
    return (
        f"Linked: {account}. Now write into config.yaml:\n"
        "\n"
        "  owner:\n"
        '    whatsapp: ["…"]    # the number that you write from, with its country code\n'
        "  channels:\n"
        "    whatsapp:\n"
        "      enabled: true\n"
        "\n"
        f"If {account} is your own number and you want to talk to nanobot in the chat with\n"
        f'yourself, write whatsapp: ["{number}"] under owner, and self_chat: true beside enabled.\n'
        "Then start `nanobot gateway`; one that runs needs a restart for new settings."
    )
