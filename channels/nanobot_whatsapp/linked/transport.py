"""WhatsApp as a linked device: keeps a helper running, and sends and receives through it.

The helper is restarted when it fails, after a pause of up to a minute. Its spool keeps unconfirmed
events. A problem that only a person can fix (no account is linked, no Node.js) turns the channel
off, with a hint."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path

from loguru import logger

from nanobot.bus.events import Media, OutboundPart, Progress, Receipt
from nanobot.channel import ChannelHost, Limits
from nanobot.channel.health import ConnectionSlot, HealthReporter
from nanobot.clock import Backoff, with_timeout
from nanobot.errors import ChannelOff, SendLater, StorageError
from nanobot.io import FENCE
from nanobot_whatsapp.ingest import Ingest, RecentMessages
from nanobot_whatsapp.linked.inbound import Downloads, Inbox
from nanobot_whatsapp.linked.install import NodeMissing, bridge_program, find_node
from nanobot_whatsapp.linked.link import PING_SECONDS, BridgeLink, HelperFailed
from nanobot_whatsapp.linked.outbound import MAX_FILE_BYTES, Outbound
from nanobot_whatsapp.linked.process import run_helper
from nanobot_whatsapp.linked.protocol import Identity, Me, State, Welcome
from nanobot_whatsapp.markup import CAPTION_LIMIT, TEXT_LIMIT, fits
from nanobot_whatsapp.people import People, id_of, jid_of
from nanobot_whatsapp.settings import WhatsAppSettings
from nanobot_whatsapp.transport import TypingIndicator

MAX_PAUSE = 60.0
SILENT_SECONDS = 80.0
"""An unresponsive helper, or its watcher, counts as hung after this time."""
OPEN_SECONDS = 30.0
"""The time that a part waits for the connection with WhatsApp before a later retry."""
_TYPING_SECONDS = 8.0
"""The interval at which typing is shown again. Phones hide it after about ten."""
_SELF_CHAT_PREFIX = "🤖 "  # begins replies in the chat with oneself, in which both sides look alike
LOGIN = "nanobot channels login whatsapp"
_LINK_HINT = f"Run `{LOGIN}` and scan the code with the phone."

FindProgram = Callable[[WhatsAppSettings, Path], Sequence[str]]
"""Returns the helper's command line, given the folder of the adapter. Blocks. Raises
`ChannelOff`."""


def find_installed_program(options: WhatsAppSettings, folder: Path) -> Sequence[str]:
    """Return the command line of the helper installed by `nanobot channels login whatsapp`."""
    try:
        node = find_node(options.node)
    except NodeMissing as error:
        raise ChannelOff(str(error), hint=error.hint) from error
    main = bridge_program(folder)
    if main is None:
        raise ChannelOff(
            "the WhatsApp helper for this version of nanobot is not installed",
            hint=f"To install it, run `{LOGIN}`.",
        )
    return (str(node), str(main))


class LinkedTransport:
    """A linked account as a `nanobot.channel.Channel`. `find_program` returns the program."""

    name = "whatsapp"
    # WhatsApp's own limits are higher, but longer texts are hard to read on a phone.
    limits = Limits(
        text=TEXT_LIMIT,
        caption=CAPTION_LIMIT,
        files=1,
        file_bytes=MAX_FILE_BYTES,
        fits=fits,
        voice=True,
        shown_once=True,
    )
    is_exclusive = True

    def __init__(
        self, options: WhatsAppSettings, *, find_program: FindProgram = find_installed_program
    ) -> None:
        self._options, self._find_program = options, find_program
        self._slot: ConnectionSlot[_Connection] = ConnectionSlot()

    async def run(self, host: ChannelHost) -> None:
        """Keep a helper running until cancelled. Raises `ChannelOff`."""
        folder, clock, options = host.state_folder, host.clock, self._options
        program = await asyncio.to_thread(self._find_program, options, folder)
        session = _Session(host, options)
        welcome = Welcome(read_receipts=options.read_receipts)
        backoff = Backoff(clock, MAX_PAUSE)
        while True:
            started = clock.monotonic()
            host.report_alive(SILENT_SECONDS)
            try:
                session.downloads.sweep()
                ingest = session.inbox.ingest
                async with run_helper(folder, program, welcome, clock, ingest) as link:
                    connection = _Connection(session, link)
                    self._slot.fill(connection)
                    try:
                        await connection.serve()
                    finally:
                        connection.is_open.set()  # wake waiting senders: the connection is gone
                        await self._slot.clear()
            except (HelperFailed, StorageError) as error:
                reason = f"{error}. {error.hint}" if error.hint else str(error)
                session.health.report("connection", f"{reason} (it will be restarted)")
            if clock.monotonic() - started > MAX_PAUSE:
                backoff.reset()
            host.report_alive(MAX_PAUSE + SILENT_SECONDS)
            await backoff.wait()

    async def send(self, part: OutboundPart) -> Receipt:
        """Deliver one part; see `nanobot.channel`. Waits for a connection, up to a limit."""
        async with self._slot.use() as connection:
            await connection.until_open()
            return await connection.outbound.send(part)

    async def close_choices(self, part: OutboundPart, receipt: Receipt, outcome: str) -> None:
        """Add the outcome to a sent message; see `nanobot.channel`."""
        async with self._slot.use() as connection:
            await connection.until_open()
            await connection.outbound.close_choices(part, receipt, outcome)

    async def fetch(self, media: Media, limit: int) -> bytes:
        """Return an inbound file; see `nanobot.channel`."""
        downloads = (await self._slot.wait()).session.downloads
        return await downloads.fetch(self._wait_until_connected, media, limit)

    async def show_progress(self, event: Progress) -> None:
        """Show typing, if a helper runs."""
        if (connection := self._slot.current) is not None:
            connection.typing.show_progress(event)

    async def _wait_until_connected(self) -> BridgeLink:
        """Return the running helper once WhatsApp is connected; see `_Connection.until_open`."""
        connection = await self._slot.wait()
        await connection.until_open()
        return connection.link


class _Session:
    """The parts that last as long as the channel runs, across helpers."""

    def __init__(self, host: ChannelHost, options: WhatsAppSettings) -> None:
        self.host, self.prefix = host, _SELF_CHAT_PREFIX
        self.health = HealthReporter("whatsapp", host)
        self.people = People(host.state_folder)
        self.downloads = Downloads(host.state_folder, host.clock)
        self.recent = RecentMessages()
        ingest = Ingest(
            host,
            self.people,
            self_chat=options.self_chat,
            pairing=options.answers_strangers,
            prefix=self.prefix,
        )
        receipts = options.read_receipts
        self.inbox = Inbox(host, ingest, self.health, self.recent, receipts=receipts)
        self.was_open = False


class _Connection:
    """The parts that exist while a helper runs. `is_open` is set while WhatsApp is connected."""

    def __init__(self, session: _Session, link: BridgeLink) -> None:
        self.session, self.link = session, link
        host, people = session.host, session.people
        outbound = Outbound(link, people, session.recent, host.media_path, session.prefix)
        self.is_open = asyncio.Event()

        async def set_typing(chat_id: str, on: bool) -> None:
            await link.request("typing", {"to": jid_of(people.address(chat_id)), "on": on})

        async def send_notice(chat_id: str, text: str) -> None:
            key = f"notice {chat_id} {host.clock.now().isoformat()}"
            await outbound.send(OutboundPart(key, "whatsapp", chat_id, text))

        self.outbound = outbound
        self.typing = TypingIndicator(set_typing, host.clock, send_notice, seconds=_TYPING_SECONDS)

    async def until_open(self) -> None:
        """Wait for WhatsApp. Raises `SendLater` after `OPEN_SECONDS`."""
        if not self.is_open.is_set():
            try:
                await with_timeout(self.session.host.clock, OPEN_SECONDS, self.is_open.wait())
            except TimeoutError:
                raise SendLater("WhatsApp is not connected", retry_after=OPEN_SECONDS) from None

    async def serve(self) -> None:
        """Send and receive through the helper, until it ends. Raises `ChannelOff`."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.typing.run())
            group.create_task(self.session.inbox.send_receipts(self.link))
            group.create_task(report_alive_while_responsive(self.session.host, self.link))
            async for change in self.link.changes():
                match change:
                    case State():
                        self.is_open.clear()
                        self._report_state(change)
                    case Identity(lid=lid, number=number):
                        await FENCE.wait_aside()
                        self._note_identity(self.link.me or Me(), (number, lid))
                    case _:
                        logger.debug("whatsapp: the helper tried to link an account unprompted")

    def _report_state(self, state: State) -> None:
        """Report the connection. Raises `ChannelOff` if only a person can fix it."""
        session, host, health = self.session, self.session.host, self.session.health
        if state.state == "open":
            session.was_open = True
            health.resolve("connection")
            if not health.problems:
                host.report_problem("")  # clears "connecting to WhatsApp"
            if state.me is not None:
                id = id_of(state.me.number or state.me.lid)
                host.report_connected(f"{'+' if id.isdigit() else ''}{id} (linked)")
            self.is_open.set()
        elif state.state == "connecting":
            # At the start this is no problem, and later its cause is already reported.
            if not session.was_open and not health.problems:
                host.report_problem("connecting to WhatsApp")
        elif (off := as_channel_off(state)) is not None:
            raise off
        else:
            health.report("connection", describe_problem(state))

    def _note_identity(self, me: Me, jids: Sequence[str]) -> None:
        """Record that these ids belong to one person, unless only one of them is ours: no other
        person shares our identity. Lost identities are learned again with the person's next
        message."""
        ids = {id_of(jid) for jid in jids if jid}
        if len({id in me.ids for id in ids}) > 1:
            logger.debug("whatsapp: a sender is identified as the linked account: {}", ids)
            return
        try:
            self.session.people.chat_of(sorted(ids))
            self.session.people.save()
        except (ValueError, StorageError) as error:
            logger.debug("whatsapp: could not save a person's ids: {}", error)


async def report_alive_while_responsive(host: ChannelHost, link: BridgeLink) -> None:
    """Keep the core's watchdog informed while the helper answers."""
    while True:
        if link.is_responsive:
            host.report_alive(SILENT_SECONDS)
        await host.clock.sleep(PING_SECONDS)


def as_channel_off(state: State) -> ChannelOff | None:
    """Return the error if only a person can fix the state."""
    detail = f": {state.detail}" if state.detail else ""
    match state.state:
        case "need_pairing":
            return ChannelOff("no WhatsApp account is linked", hint=_LINK_HINT)
        case "logged_out":
            return ChannelOff(f"WhatsApp has unlinked this device{detail}", hint=_LINK_HINT)
        case "banned" if state.retry_in is None:
            return ChannelOff(
                f"WhatsApp rejects this account{detail}",
                hint="Check the account in the app on the phone. After the restriction has ended, "
                f"run `{LOGIN}` to start the channel again.",
            )
    return None


def describe_problem(state: State) -> str:
    """Describe a temporary problem."""
    detail = f": {state.detail}" if state.detail else ""
    if state.state == "replaced":
        return "another program is using this linked device: stop it"
    if state.state != "banned":
        return f"WhatsApp cannot be reached{detail}"
    seconds = state.retry_in or 0.0
    span = f"{ceil(seconds / 60)} min" if seconds < 7200 else f"{ceil(seconds / 3600)} h"
    return f"WhatsApp rejects this account for {span}{detail}"
