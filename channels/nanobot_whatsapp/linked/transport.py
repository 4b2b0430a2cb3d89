"""WhatsApp as a linked device: keeps a helper running, and sends and receives through it.

The helper is restarted when it fails, after a pause that grows to a minute; what it has not been
told is stored stays in its spool. What only a person can fix (no account is linked, no Node.js)
turns the channel off, with a hint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from loguru import logger

from nanobot.bus.events import Media, OutboundPart, Progress, Receipt
from nanobot.channel import ChannelHost, Limits
from nanobot.channel.health import Backoff, ConnectionSlot, HealthReporter, within
from nanobot.errors import ChannelOff, SendLater, StorageError
from nanobot_whatsapp.ingest import Ingest, RecentMessages
from nanobot_whatsapp.linked.inbound import Downloads, Inbox
from nanobot_whatsapp.linked.install import NodeMissing, bridge_program, find_node
from nanobot_whatsapp.linked.link import PING_SECONDS, BridgeLink, HelperFailed
from nanobot_whatsapp.linked.outbound import MAX_FILE_BYTES, Outbound
from nanobot_whatsapp.linked.process import helper_running
from nanobot_whatsapp.linked.protocol import Identity, Me, State, Welcome
from nanobot_whatsapp.markup import CAPTION_LIMIT, TEXT_LIMIT, fits
from nanobot_whatsapp.people import People, id_of, jid_of
from nanobot_whatsapp.settings import WhatsAppSettings
from nanobot_whatsapp.transport import TypingIndicator

MAX_PAUSE = 60.0
SILENT_SECONDS = 80.0
"""After which a helper that does not answer hangs, and so does what watches it."""
OPEN_SECONDS = 30.0
"""How long a part waits for the connection with WhatsApp before it is tried later."""
_TYPING_SECONDS = 8.0
"""After which typing is shown again; phones hide it after about ten."""
LOGIN = "nanobot channels login whatsapp"
_LINK_HINT = f"Run `{LOGIN}` and scan the code with the phone."

FindProgram = Callable[[WhatsAppSettings, Path], Sequence[str]]
"""The command line of the helper, given the folder of the adapter. Blocks; raises `ChannelOff`."""


def installed_program(options: WhatsAppSettings, folder: Path) -> Sequence[str]:
    """The helper as `nanobot channels login whatsapp` has installed it, run by Node.js."""
    try:
        node = find_node(options.node)
    except NodeMissing as error:
        raise ChannelOff(str(error), hint=error.hint) from error
    main = bridge_program(folder)
    if main is None:
        raise ChannelOff(
            "the WhatsApp helper of this version of nanobot is not installed",
            hint=f"Run `{LOGIN}`, which installs it.",
        )
    return (str(node), str(main))


@dataclass(frozen=True, slots=True)
class _Connection:
    """What exists while a helper runs."""

    link: BridgeLink
    outbound: Outbound
    typing: TypingIndicator
    downloads: Downloads


class LinkedTransport:
    """Implements `nanobot.channel.Channel`. `find_program` says what to run."""

    name = "whatsapp"

    def __init__(
        self, options: WhatsAppSettings, *, find_program: FindProgram = installed_program
    ) -> None:
        self._options, self._find_program = options, find_program
        self._slot: ConnectionSlot[_Connection] = ConnectionSlot()
        self._open = asyncio.Event()
        self._host: ChannelHost | None = None

    @property
    def limits(self) -> Limits:
        """WhatsApp's own are higher; a longer text is hard to read on a phone."""
        return Limits(
            text=TEXT_LIMIT, caption=CAPTION_LIMIT, files=1, file_bytes=MAX_FILE_BYTES, fits=fits
        )

    async def run(self, host: ChannelHost) -> None:
        """Keep a helper running until cancelled. Raises `ChannelOff`; see `_off`."""
        folder, clock = host.state_folder, host.clock
        program = await asyncio.to_thread(self._find_program, self._options, folder)
        self._host = host
        session = _Session(host, self._options, self._slot, self._open)
        backoff = Backoff(clock, MAX_PAUSE)
        while True:
            started = clock.monotonic()
            host.alive(SILENT_SECONDS)
            try:
                await session.run_helper(program)
            except (HelperFailed, StorageError) as error:
                reason = f"{error}. {error.hint}" if error.hint else str(error)
                session.health.report("connection", f"{reason} (it is started again)")
            if clock.monotonic() - started > MAX_PAUSE:
                backoff.reset()
            host.alive(MAX_PAUSE + SILENT_SECONDS)
            await backoff.wait()

    async def send(self, part: OutboundPart) -> Receipt:
        """Deliver one part; see `nanobot.channel`. Waits for a connection, but not for ever."""
        async with self._slot.used() as connection:
            await self._until_open()
            return await connection.outbound.send(part)

    async def reach(self) -> None:
        """Nothing: a part that is sent again has the same id, so phones show it once."""

    async def fetch(self, media: Media, limit: int) -> bytes:
        """The content of a file that someone sent; see `nanobot.channel`."""
        connection = await self._slot.wait()
        return await connection.downloads.fetch(self._connected, media, limit)

    async def show(self, event: Progress) -> None:
        """Show that somebody types; nothing while no helper runs."""
        if (connection := self._slot.current) is not None:
            connection.typing.show(event)

    async def _connected(self) -> BridgeLink:
        """The helper that runs, once WhatsApp is connected; see `_until_open`."""
        connection = await self._slot.wait()
        await self._until_open()
        return connection.link

    async def _until_open(self) -> None:
        if self._open.is_set():
            return
        assert self._host is not None
        try:
            await within(self._host.clock, OPEN_SECONDS, self._open.wait())
        except TimeoutError:
            raise SendLater("WhatsApp is not connected", retry_after=OPEN_SECONDS) from None


class _Session:
    """What lasts as long as the channel runs, whatever becomes of helpers. `slot` is filled while a
    helper runs, and `is_open` set while it is connected."""

    def __init__(
        self,
        host: ChannelHost,
        options: WhatsAppSettings,
        slot: ConnectionSlot[_Connection],
        is_open: asyncio.Event,
    ) -> None:
        self._host, self._options, self._slot, self._open = host, options, slot, is_open
        self.health = HealthReporter("whatsapp", host)
        self._people = People(host.state_folder)
        self._downloads = Downloads(host.state_folder, host.clock)
        self._recent = RecentMessages()
        ingest = Ingest(
            host,
            self._people,
            self_chat=options.self_chat,
            pairing=options.answers_strangers,
            prefix=options.self_chat_prefix,
        )
        receipts = options.read_receipts
        self._inbox = Inbox(host, ingest, self.health, self._recent, receipts=receipts)
        self._was_open = False

    async def run_helper(self, program: Sequence[str]) -> None:
        """Run one helper to its end. Raises `HelperFailed`, `StorageError` or `ChannelOff`."""
        self._downloads.sweep()
        host, options = self._host, self._options
        welcome = Welcome(read_receipts=options.read_receipts, online=options.online)
        async with helper_running(
            host.state_folder, program, welcome, host.clock, self._inbox.ingest
        ) as link:
            try:
                await self._serve(link)
            finally:
                self._open.clear()
                await self._slot.clear()

    async def _serve(self, link: BridgeLink) -> None:
        """Send and receive through a greeted helper, until it ends."""
        host, people, prefix = self._host, self._people, self._options.self_chat_prefix
        outbound = Outbound(link, people, self._recent, host.path_of, prefix)

        async def set_typing(chat_id: str, on: bool) -> None:
            await link.request("typing", {"to": jid_of(people.address(chat_id)), "on": on})

        async def send_notice(chat_id: str, text: str) -> None:
            key = f"notice {chat_id} {host.clock.now().isoformat()}"
            await outbound.send(OutboundPart(key, "whatsapp", chat_id, text))

        typing = TypingIndicator(set_typing, host.clock, send_notice, seconds=_TYPING_SECONDS)
        self._slot.fill(_Connection(link, outbound, typing, self._downloads))
        async with asyncio.TaskGroup() as group:
            group.create_task(typing.run())
            group.create_task(self._inbox.send_receipts(link))
            group.create_task(_report_alive(host, link))
            async for change in link.changes():
                match change:
                    case State():
                        self._open.clear()
                        self._changed(change)
                    case Identity(lid=lid, number=number):
                        self._learn(link.me or Me(), (number, lid))
                    case _:
                        logger.debug("whatsapp: the helper wants to link an account unasked")

    def _changed(self, state: State) -> None:
        """Report the connection. Raises `ChannelOff` if only a person can fix it."""
        if state.state == "open":
            self._was_open = True
            self.health.resolve("connection")
            if not self.health.problems:
                self._host.report("")  # that it was connecting
            if state.me is not None:
                id = id_of(state.me.number or state.me.lid)
                self._host.connected(f"{'+' if id.isdigit() else ''}{id} (linked)")
            self._open.set()
        elif state.state == "connecting":
            # At the start this is no problem, and later the problem is what led to it.
            if not self._was_open and not self.health.problems:
                self._host.report("connecting to WhatsApp")
        elif (off := _off(state)) is not None:
            raise off
        else:
            self.health.report("connection", _problem(state))

    def _learn(self, me: Me, jids: Sequence[str]) -> None:
        """These ids are one person's, unless one of them alone is ours: nobody else is who we are.
        What is not kept now is learned again when they write."""
        ids = {id_of(jid) for jid in jids if jid}
        if len({id in me.ids for id in ids}) > 1:
            logger.debug("whatsapp: somebody is said to be the account that is linked: {}", ids)
            return
        try:
            self._people.chat_of(sorted(ids))
            self._people.save()
        except (ValueError, StorageError) as error:
            logger.debug("whatsapp: who is who is not kept: {}", error)


async def _report_alive(host: ChannelHost, link: BridgeLink) -> None:
    """Keep the watchdog of the core informed, as long as the helper answers."""
    while True:
        if link.is_responsive:
            host.alive(SILENT_SECONDS)
        await host.clock.sleep(PING_SECONDS)


def _off(state: State) -> ChannelOff | None:
    """What only a person can fix."""
    detail = f": {state.detail}" if state.detail else ""
    match state.state:
        case "need_pairing":
            return ChannelOff("no WhatsApp account is linked", hint=_LINK_HINT)
        case "logged_out":
            return ChannelOff(f"WhatsApp has unlinked this device{detail}", hint=_LINK_HINT)
        case "banned" if state.retry_in is None:
            return ChannelOff(
                f"WhatsApp refuses this account{detail}",
                hint=f"See on the phone what it says about the account; once that is over, run "
                f"`{LOGIN}`, which starts the channel again.",
            )
    return None


def _problem(state: State) -> str:
    """What passes by itself."""
    detail = f": {state.detail}" if state.detail else ""
    if state.state == "replaced":
        return "another program uses the same linked device; stop it"
    if state.state != "banned":
        return f"WhatsApp cannot be reached{detail}"
    seconds = state.retry_in or 0.0
    span = f"{ceil(seconds / 60)} min" if seconds < 7200 else f"{ceil(seconds / 3600)} h"
    return f"WhatsApp refuses this account for {span}{detail}"
