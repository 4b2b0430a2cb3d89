"""WhatsApp as a linked device: a helper that is kept running, and what goes through it.

The helper is started again when it fails, after a pause that grows to a minute; what it has not
been told is stored stays in its spool. What only a person can mend (no account is linked, no
Node.js) turns the channel off, and says how.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from loguru import logger

from nanobot.bus.events import Media, OutboundPart, Progress, Receipt
from nanobot.channel import ChannelHost, Limits
from nanobot.channel.waiting import Backoff, within
from nanobot.errors import ChannelOff, SendLater, StorageError
from nanobot_whatsapp.ids import id_of, jid_of
from nanobot_whatsapp.linked.files import Downloads
from nanobot_whatsapp.linked.hearing import HelperFailed
from nanobot_whatsapp.linked.helper import started
from nanobot_whatsapp.linked.inbox import Inbox
from nanobot_whatsapp.linked.install import NodeMissing, bridge_program, find_node
from nanobot_whatsapp.linked.link import PING_SECONDS, BridgeLink
from nanobot_whatsapp.linked.outbound import LARGEST_FILE, Outbound
from nanobot_whatsapp.linked.protocol import Identity, Me, State, Welcome
from nanobot_whatsapp.linked.quoting import Quotables
from nanobot_whatsapp.linked.standing import LOGIN, Standing
from nanobot_whatsapp.live import Live
from nanobot_whatsapp.markup import CAPTION_LIMIT, TEXT_LIMIT, fits
from nanobot_whatsapp.people import People
from nanobot_whatsapp.settings import WhatsAppSettings
from nanobot_whatsapp.taking import Taking
from nanobot_whatsapp.typing import Typing

LONGEST_PAUSE = 60.0
SILENT_SECONDS = 80.0
"""A helper that does not show for so long that it lives hangs, and so does what looks after it."""
OPEN_SECONDS = 30.0
"""How long a part waits for the connection with WhatsApp before it is tried later."""

FindProgram = Callable[[WhatsAppSettings, Path], Sequence[str]]
"""How the helper is called, given the folder of the adapter. Blocks; raises `ChannelOff`."""


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
class _Core:
    """What lasts as long as the channel runs, whatever becomes of helpers."""

    host: ChannelHost
    people: People
    inbox: Inbox
    quotables: Quotables
    standing: Standing
    downloads: Downloads


@dataclass(frozen=True, slots=True)
class _Helper:
    """What there is while a helper runs."""

    link: BridgeLink
    outbound: Outbound
    typing: Typing


class LinkedTransport:
    """Implements `nanobot_whatsapp.transport.Transport`. `find_program` says what to run."""

    def __init__(
        self, options: WhatsAppSettings, *, find_program: FindProgram = installed_program
    ) -> None:
        self._options, self._find_program = options, find_program
        self._core: _Core | None = None
        self._live: Live[_Helper] = Live()
        self._open = asyncio.Event()

    @property
    def limits(self) -> Limits:
        """WhatsApp's own are higher; a longer text is hard to read on a phone."""
        return Limits(
            text=TEXT_LIMIT, caption=CAPTION_LIMIT, files=1, file_bytes=LARGEST_FILE, fits=fits
        )

    async def run(self, host: ChannelHost) -> None:
        """Keep a helper running until cancelled. Raises `ChannelOff`; see `Standing`."""
        folder, clock = host.state_folder, host.clock
        program = await asyncio.to_thread(self._find_program, self._options, folder)
        people = People(folder)
        taking = Taking(
            host,
            people,
            self_chat=self._options.self_chat,
            pairing=self._options.answers_strangers,
            prefix=self._options.self_chat_prefix,
        )
        standing = Standing(host)
        quotables, receipts = Quotables(), self._options.read_receipts
        inbox = Inbox(host, taking, standing, quotables, receipts=receipts)
        downloads = Downloads(folder, clock)
        self._core = core = _Core(host, people, inbox, quotables, standing, downloads)
        backoff = Backoff(clock, LONGEST_PAUSE)
        while True:
            began = clock.monotonic()
            host.alive(SILENT_SECONDS)
            try:
                await self._run_helper(core, program)
            except (HelperFailed, StorageError) as error:
                standing.helper_failed(f"{error}. {error.hint}" if error.hint else str(error))
            if clock.monotonic() - began > LONGEST_PAUSE:
                backoff.reset()
            host.alive(LONGEST_PAUSE + SILENT_SECONDS)
            await backoff.wait()

    async def send(self, part: OutboundPart) -> Receipt:
        """Deliver one part; see `nanobot.channel`. Waits for a connection, but not for ever."""
        async with self._live.used() as helper:
            await self._until_open()
            return await helper.outbound.send(part)

    async def reach(self) -> None:
        """Nothing: a part that is sent again has the same id, so phones show it once."""

    async def fetch(self, media: Media, limit: int) -> bytes:
        """The content of a file that someone sent; see `nanobot.channel`."""
        await self._live.got()
        assert self._core is not None
        return await self._core.downloads.fetch(self._connected, media, limit)

    async def show(self, event: Progress) -> None:
        """Show that somebody types; nothing while no helper runs."""
        if (helper := self._live.now) is not None:
            helper.typing.show(event)

    async def _connected(self) -> BridgeLink:
        """The helper that runs, once WhatsApp is connected; see `_until_open`."""
        helper = await self._live.got()
        await self._until_open()
        return helper.link

    async def _until_open(self) -> None:
        if self._open.is_set():
            return
        assert self._core is not None
        try:
            await within(self._core.host.clock, OPEN_SECONDS, self._open.wait())
        except TimeoutError:
            raise SendLater("WhatsApp is not connected", retry_after=OPEN_SECONDS) from None

    async def _run_helper(self, core: _Core, program: Sequence[str]) -> None:
        """Run one helper to its end. Raises `HelperFailed`, `StorageError` or `ChannelOff`."""
        core.downloads.sweep()
        host = core.host
        welcome = Welcome(read_receipts=self._options.read_receipts, online=self._options.online)
        async with started(
            host.state_folder, program, welcome, host.clock, core.inbox.take
        ) as link:
            try:
                await self._serve(core, link)
            finally:
                self._open.clear()
                await self._live.end()

    async def _serve(self, core: _Core, link: BridgeLink) -> None:
        host, people = core.host, core.people
        prefix = self._options.self_chat_prefix
        outbound = Outbound(link, people, core.quotables, host.path_of, prefix)
        typing = Typing(_typing(link, people), host.clock, _notices(outbound, host))
        self._live.begin(_Helper(link, outbound, typing))
        async with asyncio.TaskGroup() as group:
            group.create_task(typing.run())
            group.create_task(core.inbox.tell_read(link))
            group.create_task(_show_life(host, link))
            await self._follow(core, link)

    async def _follow(self, core: _Core, link: BridgeLink) -> None:
        """Act on what becomes known of the connection."""
        async for change in link.states():
            match change:
                case State():
                    self._open.clear()
                    if core.standing.changed(change):
                        self._open.set()
                case Identity(lid=lid, number=number):
                    _learn(core.people, link.me or Me(), (number, lid))
                case _:
                    logger.debug("whatsapp: the helper wants to link an account unasked")


async def _show_life(host: ChannelHost, link: BridgeLink) -> None:
    while True:
        if link.answers:
            host.alive(SILENT_SECONDS)
        await host.clock.sleep(PING_SECONDS)


def _learn(people: People, me: Me, jids: Sequence[str]) -> None:
    """These ids are one person's, unless one of them alone is ours: nobody else is who we are. What
    is not kept now is learned again when they write."""
    ids = {id_of(jid) for jid in jids if jid}
    if len({id in me.ids for id in ids}) > 1:
        logger.debug("whatsapp: somebody is said to be the account that is linked: {}", ids)
        return
    try:
        people.met(sorted(ids))
        people.keep()
    except (ValueError, StorageError) as error:
        logger.debug("whatsapp: who is who is not kept: {}", error)


def _typing(link: BridgeLink, people: People) -> Callable[[str, bool], Awaitable[None]]:
    async def call(chat_id: str, on: bool) -> None:
        await link.request("typing", {"to": jid_of(people.address(chat_id)), "on": on})

    return call


def _notices(outbound: Outbound, host: ChannelHost) -> Callable[[str, str], Awaitable[None]]:
    async def say(chat_id: str, text: str) -> None:
        key = f"notice {chat_id} {host.clock.now().isoformat()}"
        await outbound.send(OutboundPart(key, "whatsapp", chat_id, text))

    return say
