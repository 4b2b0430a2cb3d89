"""`nanobot channels login whatsapp`: links a WhatsApp account, with a person at the terminal.

The helper is installed if it is missing, and started so that it may pair. It reports the code to
scan or to type, and the result. Invariants: messages that arrive during the login stay in the
helper's spool for the gateway. The output contains no secret except the code, which expires once it
was scanned or after a minute.

A character of a QR code shows two modules, one above the other. Dark modules are dark on any
terminal, because a phone may not read a code with swapped colours. If colours are unsuitable (in a
file, a pipe), the characters are printed for a dark background."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence

from nanobot.channel import LoginRequest
from nanobot.clock import with_timeout
from nanobot.errors import NanobotError
from nanobot.text import one_line
from nanobot_whatsapp.linked.install import find_node, install
from nanobot_whatsapp.linked.link import HelperFailed
from nanobot_whatsapp.linked.process import run_helper
from nanobot_whatsapp.linked.protocol import Change, Me, PairCode, Qr, State, Welcome
from nanobot_whatsapp.people import id_of, phone_digits
from nanobot_whatsapp.settings import WhatsAppSettings

LOGIN_SECONDS = 600.0
"""The time limit for a person."""

SETTLING_SECONDS = 10.0
"""The time that a newly linked account stays connected. The phone and WhatsApp exchange keys with
the new device first, and a phone that loses the connection reports a failed link."""

_QUIET = 2
"""Modules of light margin. The standard requires four. Phones need two, and lines are scarce."""
_BLACK_ON_WHITE = "\x1b[38;5;16;48;5;231m"
_NORMAL = "\x1b[0m"
_DARK = {(True, True): "█", (True, False): "▀", (False, True): "▄", (False, False): " "}
"""The character for a pair of modules, by whether the upper and lower are inked."""

_TOO_LARGE = (
    "If it is too large for the window, enlarge the window or reduce its font size, or press "
    "Ctrl-C and use --pair-code NUMBER."
)
_WHERE = "On the phone: WhatsApp > Settings (or ⋮) > Linked devices > Link a device"


async def login(request: LoginRequest) -> None:
    """Link an account, or show which one is linked. Raises `NanobotError` if that fails."""
    options = request.options
    if not isinstance(options, WhatsAppSettings):
        raise TypeError("the options belong to another channel")
    if options.transport != "linked":
        raise NanobotError(
            f"channels.whatsapp.transport is {options.transport}, so there is no device to link",
            hint="Set it to linked, or remove it, to use WhatsApp as a linked device.",
        )
    number = phone_digits(request.number) if request.number else ""
    node = await asyncio.to_thread(find_node, options.node)
    main = await install(request.state_folder, node, request.say)
    welcome = Welcome("code" if number else "qr", number, options.read_receipts)
    request.say("Connecting to WhatsApp …")
    program = (str(node), str(main))
    dialogue = _Dialogue(request, number)
    for _ in range(2):
        # The helper sets an account aside that is no longer linked. The next run may pair.
        if await dialogue.run(program, welcome):
            return
        request.say("The account that was linked here is no longer linked. Linking again …")
    raise NanobotError("WhatsApp does not accept this device", hint="Try again in a few minutes.")


class _Dialogue:
    """The messages to the person, step by step."""

    def __init__(self, request: LoginRequest, number: str) -> None:
        self._request, self._say, self._number = request, request.say, number
        self._asked = False
        self._problem = ""

    async def run(self, program: Sequence[str], welcome: Welcome) -> bool:
        """Run a helper until an account is linked. Return False if the account on disk is no longer
        linked."""
        request = self._request
        async with run_helper(request.state_folder, program, welcome, request.clock) as link:
            try:
                me = await with_timeout(
                    request.clock, LOGIN_SECONDS, self._until_open(link.changes())
                )
            except TimeoutError:
                raise NanobotError(
                    f"no account was linked within {LOGIN_SECONDS / 60:.0f} minutes",
                    hint=self._problem or "Run this again when you have the phone at hand.",
                ) from None
            if me is None:
                return False
            if self._asked:
                self._say("Linked. Waiting for the phone to finish …")
                await request.clock.sleep(SETTLING_SECONDS)
        self._say(describe_account(me, is_new=self._asked, is_set_up=request.is_set_up))
        return True

    async def _until_open(self, changes: AsyncIterator[Change]) -> Me | None:
        """Return the linked account, or None if the one on disk is no longer linked."""
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
                    self._report_state(change)
        raise HelperFailed("the WhatsApp helper closed the connection")

    def _show(self, data: str) -> None:
        """Show a code to scan. Raises `HelperFailed` if it is too long."""
        show_code, is_first = self._request.show_code, not self._asked
        self._asked = True
        try:
            coloured = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
            drawn = draw_qr(data, coloured=coloured)
        except ValueError as error:
            raise HelperFailed("the WhatsApp helper sent too much data for a QR code") from error
        if show_code is not None:
            self._say(_WHERE)
            show_code(data)
            return
        if is_first:
            self._say(f"{_WHERE}\nScan the newest code. {_TOO_LARGE}")
        self._say(drawn)

    def _ask_to_type(self, code: str) -> None:
        """Show a code to type into the phone."""
        self._asked = True
        self._say(
            f"{_WHERE}\n> Link with phone number instead.\n"
            f"On the phone with the number +{self._number}, enter this code:\n\n    {code}\n"
        )

    def _report_state(self, state: State) -> None:
        """Show a problem. Raises `NanobotError` if waiting does not fix it."""
        detail = f" ({state.detail})" if state.detail else ""
        if state.state in _FINAL:
            text, hint = _FINAL[state.state]
            raise NanobotError(f"{text}{detail}", hint=hint)
        problem = f"WhatsApp can't be reached{detail}; retrying …"
        if state.state == "backoff" and problem != self._problem:
            self._problem = problem
            self._say(problem)


_FINAL: Mapping[str, tuple[str, str]] = {
    "banned": (
        "WhatsApp rejects this account",
        "Check the account on the phone, and try again later.",
    ),
    "logged_out": (
        "WhatsApp rejected the new device",
        "On the phone, check under Linked devices whether there are too many.",
    ),
    "replaced": (
        "another program is using this linked device",
        "If a second nanobot is using a copy of this folder, stop it first.",
    ),
}


def describe_account(me: Me, *, is_new: bool, is_set_up: bool) -> str:
    """Describe the linked account, and the configuration to add if nothing is set up yet."""
    number = id_of(me.number) if me.number else ""
    name = f" ({one_line(me.name)})" if me.name else ""
    account = f"+{number}{name}" if number else me.lid or "the account"
    if not is_new:
        return (
            f"Already linked: {account}. To link another account, first remove this device on the"
            " phone, under Linked devices."
        )
    if is_set_up:
        return f"Linked: {account}."
    return f"""Linked: {account}. Now add this to config.yaml:

  owner:
    whatsapp: ["…"]    # your own number, with its country code
  channels:
    whatsapp:
      enabled: true

If {account} is your own number and you want to use the chat with yourself,
put whatsapp: ["{number}"] under owner, and add self_chat: true next to enabled.
Then start `nanobot gateway`, or restart it if it is running."""


def draw_qr(data: str, *, coloured: bool) -> str:
    """Return the lines of a QR code that holds `data`: `coloured` in the terminal's black and
    white, or else with dark modules left out. Raises `ValueError` if the data is too long."""
    import segno

    code = segno.make_qr(data, error="l", boost_error=False)
    rows = [[bool(module) for module in row] for row in code.matrix_iter(border=_QUIET)]
    if len(rows) % 2:
        rows.append([False] * len(rows[0]))
    pairs = zip(rows[::2], rows[1::2], strict=True)
    lines = (  # without colours, dark modules are left out
        "".join(_DARK[up is coloured, low is coloured] for up, low in zip(*pair, strict=True))
        for pair in pairs
    )
    before, after = (_BLACK_ON_WHITE, _NORMAL) if coloured else ("", "")
    return "\n".join(f"{before}{line}{after}" for line in lines)
