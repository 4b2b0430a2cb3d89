"""The page as a channel: its own chats, and the operations `web.…`.

The channel is always there and sleeps: no code of the page is loaded until a person requests a link
(`nanobot web`) or `channels.web.enabled` is set.

A conversation is shown from its session. `Extras` keeps the newest messages that no session has
(answers to commands, sent files). A reply is already in the session when it is delivered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from loguru import logger

from nanobot.bus.events import OWNER_ACCOUNT, Media, OutboundPart, Progress, Receipt
from nanobot.channel import ChannelHost, GatewayEvent, Limits, Operation, Overview
from nanobot.channel.health import ConnectionSlot
from nanobot.errors import ChannelOff, NanobotError, SendRefused
from nanobot.io import FENCE
from nanobot_web.settings import SESSIONS_FILE, WebSettings

if TYPE_CHECKING:
    from nanobot_web.site import Routes, Site

_NO_LIMIT = 1 << 62
_FILES = 10


class WebChannel:
    """An implementation of `nanobot.channel.Channel` and `Overseer`. `enabled`: serve the page from
    the start, not only on request."""

    name = "web"
    limits = Limits(caption=_NO_LIMIT, files=_FILES, closing=True, voice=True, shown_once=True)

    def __init__(self, options: WebSettings | None = None, *, enabled: bool = True) -> None:
        self._options = options or WebSettings()
        self._wanted = asyncio.Event()
        if enabled:
            self._wanted.set()
        self._overview: Overview | None = None
        self._site: ConnectionSlot[Site | NanobotError] = ConnectionSlot()
        """The page, or the reason why it cannot be served."""
        self._host: ConnectionSlot[ChannelHost] = ConnectionSlot()

    def oversee(self, overview: Overview) -> Mapping[str, Operation]:
        """See `Overseer`."""
        self._overview = overview
        return {"web.link": self._link, "web.list": self._list, "web.revoke": self._revoke}

    async def run(self, host: ChannelHost) -> None:
        """Sleep until the page is wanted, then serve it. A signed-in browser is a reason too,
        because its pages reconnect after a restart. They also show turns that resume before."""
        self._host.fill(host)
        host.report_idle("to open the page, run `nanobot web`")
        assert self._overview is not None
        early = list[GatewayEvent]()
        async with AsyncExitStack() as watching:
            watching.enter_context(self._overview.watch(early.append))
            if await asyncio.to_thread(self._has_visitors, host):
                self._wanted.set()
            if self._wanted.is_set():
                await self._serve(host, early, watching)
        await self._wanted.wait()
        await self._serve(host, (), watching)

    async def _serve(
        self, host: ChannelHost, early: Iterable[GatewayEvent], watching: AsyncExitStack
    ) -> None:
        """Serve the page, beginning with the `early` events, which are `watching` until then."""
        assert self._overview is not None
        from nanobot_web.pages.files import remove_old_uploads
        from nanobot_web.sessions import Sessions
        from nanobot_web.site import Site

        try:
            async with AsyncExitStack() as stack:
                folder = host.state_folder
                await asyncio.to_thread(remove_old_uploads, folder, host.clock.now().timestamp())
                sessions = await asyncio.to_thread(Sessions, folder, host.clock)
                site = Site(self._options, host, self._overview, sessions, routes())
                site.at = await stack.enter_async_context(host.serve_http("/", site.handle))
                await watching.aclose()
                stack.enter_context(site.live.watch(early))
                host.report_idle("")
                self._site.fill(site)
                stack.push_async_callback(self._site.clear)
                await site.live.send_texts()
        except ChannelOff:
            raise
        except NanobotError as error:
            self._site.fill(error)
            raise ChannelOff(str(error), hint=error.hint) from error

    def _has_visitors(self, host: ChannelHost) -> bool:
        if not (host.state_folder / SESSIONS_FILE).exists():
            return False
        from nanobot_web.sessions import Sessions

        return bool(Sessions(host.state_folder, host.clock).list_active())

    async def send(self, part: OutboundPart) -> Receipt:
        """Keep a part for the page, unless its session has it. Raises `StorageError`."""
        from nanobot_web.extras import Extras

        host = await self._host.wait()
        assert self._overview is not None
        kept = Extras(host.state_folder)
        extra = await kept.keep(part, host.clock.now(), self._overview)
        site = self._site.current
        if site is not None and not isinstance(site, NanobotError):
            site.live.note_delivery(part, extra)
        return Receipt()

    async def forget_chat(self, folder: Path, key: str) -> None:
        """See `nanobot.channel.Keeper`."""
        from nanobot_web.extras import Extras

        await Extras(folder).forget(key)

    async def fetch(self, media: Media, limit: int) -> bytes:
        """See `Channel`."""
        from nanobot_web.pages.files import UPLOADS

        host = await self._host.wait()
        path = host.state_folder / UPLOADS / Path(media.ref).name
        try:
            size = path.stat().st_size
            if size > limit:
                raise SendRefused(f"it is {size / 1e6:.0f} MB (limit: {limit / 1e6:.0f} MB)")
            data = await asyncio.to_thread(path.read_bytes)
        except OSError as error:
            raise SendRefused("it no longer exists") from error
        return data

    async def show_progress(self, event: Progress) -> None:
        """Do nothing: the page watches all conversations, including its own."""

    async def _link(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return a one-time link that signs in as the owner, or as the person `account`. With
        `setup`, it also permits the owner to set nanobot up. Start the page if it does not run.
        Raises `NanobotError` if it cannot be served."""
        account = arguments.get("account") or OWNER_ACCOUNT
        if not isinstance(account, str):
            raise NanobotError("an account must be text, such as telegram:12345")
        sets_up = arguments.get("setup") is True
        if sets_up and account != OWNER_ACCOUNT:
            raise NanobotError("only the owner can set nanobot up")
        self._wanted.set()
        site = await self._wait_for_site()
        logger.info("web: a sign-in link was created for {}", account)
        return await asyncio.to_thread(partial(site.new_link, account, sets_up=sets_up))

    async def _list(self, _: Mapping[str, object]) -> dict[str, object]:
        """Return the signed-in browsers, and the address of the page."""
        if not self._wanted.is_set():
            return {"sessions": [], "address": ""}
        site = await self._wait_for_site()
        return {"sessions": site.list_sessions(), "address": site.base}

    async def _revoke(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Sign out a browser by its id, all of a person by their account, or `all`."""
        which = arguments.get("id")
        self._wanted.set()
        site = await self._wait_for_site()
        await FENCE.wait_aside()
        if not isinstance(which, str) or not site.sessions.revoke(which):
            raise NanobotError(f"no browser is signed in as {which!r}")
        site.live.end_all()
        return {"text": f"Signed out {which}."}

    async def _wait_for_site(self) -> Site:
        """Return the page when it is ready. Raises `NanobotError` if it cannot be served."""
        site = await self._site.wait()
        if isinstance(site, NanobotError):
            raise NanobotError(f"the page can't be served: {site}", hint=site.hint)
        return site


def routes() -> Routes:
    """Load all pages and return their routes."""
    from nanobot_web.pages import (
        activity,
        approvals,
        chat,
        figures,
        files,
        health,
        jobs,
        listing,
        memory,
        messages,
        people,
        settings,
        setup,
        starting,
        stream,
        tasks,
    )

    pages = (
        *(activity, approvals, chat, figures, files, health, jobs, listing),
        *(memory, messages, people, settings, setup, starting, stream, tasks),
    )
    return {at: route for page in pages for at, route in page.ROUTES.items()}
