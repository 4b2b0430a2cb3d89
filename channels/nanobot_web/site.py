"""The page's server: authentication, permissions, and routing.

Invariants, checked for every request before a page sees it:

- It comes from this machine, or under the address of a configured proxy. The gateway's server has
  checked the host name, so no other site can reach this one under its name. A request that
  a proxy passed on under another name is rejected, because it only seems to come from this machine.
- Without a session there is only the sign-in page with its style. The same holds for a person who
  may no longer talk to nanobot.
- A change comes from a page of this site (`Origin`, `Sec-Fetch-Site`) and has the token of its
  session.
- Pages about more than the visitor are for the owner only, unless the route is for everyone.
- An answer allows only scripts of the site, no content of other sites, and no frame."""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode, urlsplit

from aiohttp import HttpVersion11, web
from jinja2 import Environment, PackageLoader, StrictUndefined
from loguru import logger
from msgspec import Struct

from nanobot.bus.events import OWNER_ACCOUNT
from nanobot.channel import ChannelHost, Chat, Overview, Sender, came_by_proxy
from nanobot.clock import find_zone, with_timeout
from nanobot.errors import NanobotError
from nanobot.io import FENCE
from nanobot_web.assets import asset_address, assets
from nanobot_web.extras import Extras
from nanobot_web.live import Live
from nanobot_web.markdown import to_html
from nanobot_web.places import find_place, places_for
from nanobot_web.requests import break_off, is_local, to_number, to_sentences
from nanobot_web.sessions import LINK_SECONDS, SESSION_DAYS, SETUP_SECONDS, Sessions, Visitor
from nanobot_web.settings import WebSettings

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "media-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # without any, the origin of forms would be "null"
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=()",
    "Server": "nanobot",
}
_PUBLIC = (
    "style.css", "icon.svg", "icon-192.png", "icon-512.png", "manifest.json", "offline.html",
    "worker.js",
)  # fmt: skip
"""The static files that browsers request without a session, too."""
_WORKER = "/worker.js"
"""The path of the service worker, which decides its scope."""
RESTART_SECONDS = 1.0
"""Seconds before a restart, in which the page that reports it loads its scripts."""
SETUP = "/settings/model/setup"
"""The path of the set-up."""
_CHATS = "web:"  # prefix of the key of a page's conversation
_FORM_SECONDS = 60.0
_MOST_TOLD = 5
_STREAM = web.RequestKey("stream", web.StreamResponse)  # the streamed answer to a request

Handler = Callable[["Call"], Awaitable[web.StreamResponse]]


class Route(Struct, frozen=True):
    """The handler of a path. `everyone`: it also serves people other than the owner, with their own
    data."""

    handler: Handler
    everyone: bool = False


Routes = Mapping[tuple[str, str], Route]
"""The routes by method and path."""


class PageError(NanobotError):
    """A rejected request, with its HTTP status."""

    def __init__(self, status: int, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


class Plan(Struct, frozen=True):
    """A planned change of settings, as shown. `name` identifies it in the form, and `back` is the
    page to show afterwards."""

    name: str
    changes: Mapping[str, object]
    hash: str
    back: str


class Call:
    """One request of a visitor, for its page."""

    def __init__(self, site: Site, request: web.Request, visitor: Visitor, scope: str) -> None:
        self.site, self.request, self.visitor = site, request, visitor
        self.scope = scope
        """The scope that the visitor is limited to, empty for the owner."""
        self.form: Mapping[str, str] = {}
        """The fields of a form, in a change without an upload."""

    def query(self, name: str) -> str:
        """Return a parameter of the address, empty if it is missing."""
        return self.request.query.get(name, "")

    def number(self, name: str, default: int = 0) -> int:
        """Return a parameter of the address that is a number of 0 or more."""
        return to_number(self.query(name), default)

    @property
    def zone(self) -> str:
        """The browser's time zone, or an empty text if it is unknown."""
        name = self.request.cookies.get("zone", "")
        return name if find_zone(name) else ""

    @property
    def now(self) -> datetime:
        """The time in the zone of the browser, or in nanobot's if the browser's is unknown."""
        now = self.site.host.clock.now()
        return now.astimezone(find_zone(self.zone) or now.tzinfo)

    @property
    def own_scope(self) -> str:
        """The scope that the visitor writes in."""
        return self.scope or OWNER_ACCOUNT

    async def expect_visible(self, key: str) -> str:
        """Return the scope of a conversation. Raises `PageError` if the visitor may not see it, or
        if it doesn't exist and its id wasn't made for them."""
        if key != key.strip():  # operations strip it, so it would name another one
            raise PageError(404, "There is no such conversation.")
        owner = str((await self.ask("conversations.owner", key=key))["scope"])
        chat = key.removeprefix(_CHATS)
        if not owner and key != chat and self.site.sessions.is_chat_of(chat, self.own_scope):
            return self.own_scope
        if not owner or (self.scope and owner != self.scope):
            raise PageError(404, "There is no such conversation.")
        return owner

    async def ask(self, operation: str, **arguments: object) -> dict[str, Any]:
        """Run an operation of the gateway. Raises `NanobotError`, redacted for this visitor."""
        found = self.site.overview.operations.get(operation)
        if found is None:
            raise NanobotError(f"this nanobot has no operation {operation!r}")
        try:
            data = await found({name: one for name, one in arguments.items() if one is not None})
        except NanobotError as error:
            raise error.redact_for(is_owner=self.visitor.is_owner) from error
        return data if isinstance(data, dict) else {"value": data}

    async def titles(
        self, records: Iterable[Mapping[str, Any]], field: str = "session"
    ) -> Mapping[str, str]:
        """Return a title for each conversation in a field of the records, or its key if it has
        none."""
        keys = [one[field] for one in records]
        found = (await self.ask("conversations.titles", keys=keys))["titles"]
        return {key: found.get(key, key) for key in keys}

    def page(
        self, template: str, title: str, *, status: int = 200, **values: object
    ) -> web.Response:
        """Render a whole page."""
        path, told = self.request.path, self.site.told.pop(self.visitor.session, ())
        place, view = find_place(path)
        given: dict[str, object] = {"title": title, "path": path, "told": told}
        given["places"] = places_for(is_owner=self.visitor.is_owner)
        given["place"], given["view"] = place, view
        return self.part(template, status=status, **given, **values)

    def part(self, template: str, *, status: int = 200, **values: object) -> web.Response:
        """Render a page or a piece of one."""
        text = self.site.render(template, visitor=self.visitor, **values)
        return web.Response(text=text, content_type="text/html", status=status)

    def stream(self, content_type: str) -> web.StreamResponse:
        """Return an answer that is written piece by piece."""
        headers = {"Content-Type": content_type, "Cache-Control": "no-store"}
        response = web.StreamResponse(headers={**_HEADERS, **headers})
        self.request[_STREAM] = response
        return response

    def back(self, path: str, **query: object) -> web.Response:
        """Redirect to a page with GET, after a form."""
        given = {name: one for name, one in query.items() if one not in (None, "")}
        at = f"{path}?{urlencode(given)}" if given else path
        return web.Response(status=303, headers={"Location": at})

    def pager(self, offset: int, size: int, total: int) -> dict[str, object]:
        """Return the values of the macro `pieces`: the addresses of the previous and next piece."""
        rest = {name: one for name, one in self.request.query.items() if name != "offset"}

        def at(place: int) -> str:
            return str(self.request.rel_url.with_query({**rest, "offset": str(place)}))

        return {
            "newer": at(max(0, offset - size)) if offset else "",
            "older": at(offset + size) if offset + size < total else "",
            "first": min(offset + 1, total),
            "last": min(offset + size, total),
            "total": total,
        }

    def tell(self, text: str) -> None:
        """Show a text on the next page of this visitor."""
        told = self.site.told.get(self.visitor.session, ())
        self.site.told[self.visitor.session] = (*told, text)[-_MOST_TOLD:]

    async def act(self, operation: str, **arguments: object) -> dict[str, Any]:
        """Run an operation that changes something, in the visitor's name for the audit log. Raises
        `NanobotError`, as `ask` does."""
        return await self.ask(operation, by=f"web:{self.visitor.account}", **arguments)

    async def change(self, operation: str, **arguments: object) -> dict[str, Any]:
        """Run an operation as `act` does. If it fails, show the error on the next page, and return
        an empty result."""
        try:
            return await self.act(operation, **arguments)
        except NanobotError as error:
            self.tell(to_sentences(error))
            return {}


class Site:
    """The pages of one gateway. `at` is its address on this machine."""

    def __init__(
        self,
        options: WebSettings,
        host: ChannelHost,
        overview: Overview,
        sessions: Sessions,
        routes: Routes,
    ) -> None:
        self._options, self.host, self.overview, self.sessions = options, host, overview, sessions
        self.live = Live(overview, host.clock)
        self.extras = Extras(host.state_folder)
        self.voiced: set[str] = set()
        """The accounts with a sound that is being transcribed or made."""
        self.plans: dict[str, Plan] = {}
        """The pending change of each session, as shown last."""
        self.at = ""
        self.told: dict[str, Sequence[str]] = {}
        """The texts for the next page of a session, by the session's id."""
        self._routes = routes
        self._jinja = Environment(
            loader=PackageLoader("nanobot_web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._jinja.filters["markdown"] = to_html
        self._jinja.globals["asset"] = asset_address

    def has(self, operation: str) -> bool:
        """Return True if the gateway has an operation, such as `transcribe`."""
        return operation in self.overview.operations

    @property
    def base(self) -> str:
        """The address of the page: the public one, if it has one."""
        return self._options.address or self.at.rstrip("/")

    def new_link(self, account: str, *, sets_up: bool = False) -> dict[str, object]:
        """Return a link that signs in once as that account, and whether a phone can reach it."""
        secret = self.sessions.new_link(account, sets_up=sets_up)
        return {
            "url": f"{self.base}/login?link={secret}",
            "seconds": SETUP_SECONDS if sets_up else LINK_SECONDS,
            "is_public": bool(self._options.address),
            "account": account,
        }

    def list_sessions(self) -> list[dict[str, object]]:
        """Return the sessions, for people."""
        return [
            {
                "id": one.id,
                "account": one.account,
                "created_at": one.created_at.isoformat(),
                "seen_at": one.seen_at.isoformat(),
                "browser": one.browser,
            }
            for one in self.sessions.list_active()
        ]

    def render(self, template: str, **values: object) -> str:
        """Render a template with values, all of them escaped."""
        return self._jinja.get_template(template).render(**values)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request. Any result has a status and the headers of the site."""
        try:
            response = await self._answer(request)
        except Exception as error:
            begun = request.get(_STREAM)
            if begun is not None and begun.prepared:  # too late for an error page
                return break_off(request, begun, error)
            if not isinstance(error, NanobotError):
                raise
            status = error.status if isinstance(error, PageError) else 400
            response = self._refusal(request, status, error)
        if not response.prepared:
            for name, value in _HEADERS.items():
                response.headers.setdefault(name, value)
            response.headers.setdefault("Cache-Control", "no-store")
        return response

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self._check_way(request)
        path = request.path.rstrip("/") or "/"
        name = path.removeprefix("/" if path == _WORKER else "/static/")
        if name in _PUBLIC:
            return assets()[name].answer(request)
        if path == "/login":
            await FENCE.wait_aside()
            return self._login(request)
        visitor = self.sessions.visitor(request.cookies.get(self._cookie(request), ""))
        if visitor is None:
            raise PageError(401, "You are not signed in.", hint="To get a link, run `nanobot web`.")
        if asset := assets().get(name):
            return asset.answer(request)
        return await self._route(request, path, visitor)

    async def _route(self, request: web.Request, path: str, visitor: Visitor) -> web.StreamResponse:
        method = "GET" if request.method == "HEAD" else request.method
        route = self._routes.get((method, path))
        if route is None or not (route.everyone or visitor.is_owner):
            raise PageError(404, "There is no such page.")
        call = Call(self, request, visitor, await self._limit_of(visitor))
        if method != "GET":
            await self._check_change(call)
        try:
            return await route.handler(call)
        except NanobotError as error:
            raise error.redact_for(is_owner=visitor.is_owner) from error

    async def expect_unchanged(self, call: Call) -> None:
        """Raise `PageError` if the visitor of a running stream may no longer open it, because they
        are signed out, have lost access, or have another scope."""
        visitor = self.sessions.visitor(call.request.cookies.get(self._cookie(call.request), ""))
        if visitor != call.visitor or await self._limit_of(visitor) != call.scope:
            raise PageError(401, "You are not signed in.")

    async def _limit_of(self, visitor: Visitor) -> str:
        """Return the scope that a visitor is limited to, empty for the owner. Raises `PageError`
        for a person who has lost access since they signed in."""
        if visitor.is_owner:
            return ""
        if self.host.admit(Sender(visitor.account), Chat(""), addressed=False) != "allowed":
            raise PageError(403, "You no longer have access to this nanobot.")
        asked = self.overview.operations["conversations.scope"]
        found = await asked({"account": visitor.account})
        scope = found.get("scope") if isinstance(found, dict) else None
        if not isinstance(scope, str) or not scope:  # an empty scope would be that of all people
            raise PageError(403, "You have no conversations here.")
        return scope

    def _check_way(self, request: web.Request) -> None:
        """Raise `PageError` if a request from another machine is not encrypted."""
        name, _ = _name_and_port(request)
        declared = urlsplit(self._options.address).hostname
        if declared is not None and name == declared:
            return
        # nginx adds no header by default, but uses HTTP/1.0, which no browser does.
        is_old = request.version < HttpVersion11
        passed_on = is_old or came_by_proxy(name.lower() for name in request.headers)
        if passed_on or not (is_local(name) and is_local(request.remote or "")):
            raise PageError(
                403,
                "This page is available only on this machine.",
                hint="Set channels.web.address to the https:// address of a proxy, or use an SSH "
                "tunnel: docs/web.md.",
            )

    async def _check_change(self, call: Call) -> None:
        """Raise `PageError` unless a page of this site asks, in this session."""
        request = call.request
        origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site")
        ours = f"{self._scheme(request)}://{request.host}"
        if origin not in (None, ours) or site not in (None, "same-origin"):
            raise PageError(403, "This request did not come from nanobot's own page.")
        token = request.headers.get("X-Form-Token", "")
        if not request.content_type.startswith("multipart/"):
            try:
                sent = await with_timeout(self.host.clock, _FORM_SECONDS, request.post())
            except TimeoutError:
                raise PageError(408, "The request timed out.") from None
            except (ValueError, LookupError):  # wrong encoding
                raise PageError(400, "The form is invalid.") from None
            call.form = {name: one for name, one in sent.items() if isinstance(one, str)}
            token = token or call.form.get("token", "")
        if not hmac.compare_digest(token.encode(errors="replace"), call.visitor.token.encode()):
            raise PageError(403, "The page is out of date.", hint="Reload it.")

    def _login(self, request: web.Request) -> web.Response:
        """Use a link up. The welcome page then opens the next page, so that the browser sends the
        cookie even if the link was clicked on another site."""
        link = request.query.get("link", "")
        if request.method != "GET" or not link:
            raise PageError(401, "You are not signed in.", hint="To get a link, run `nanobot web`.")
        secret = self.sessions.enter(link, request.headers.get("User-Agent", ""))
        if not secret:
            raise PageError(
                401,
                "This link has expired or was already used.",
                hint="If you did not use it yourself, first run `nanobot web revoke all`. To get a "
                "new link, run `nanobot web` (or `nanobot web --setup`) again.",
            )
        logger.info("web: a browser was signed in by a link")
        entered = self.sessions.visitor(secret)
        sets_up = entered is not None and self.sessions.may_set_up(entered.session)
        text = self.render("welcome.html", next=SETUP if sets_up else "/chat")
        response = web.Response(text=text, content_type="text/html")
        response.set_cookie(
            self._cookie(request),
            secret,
            path="/",
            httponly=True,
            samesite="Strict",
            secure=self._scheme(request) == "https",
            max_age=SESSION_DAYS * 86_400,
        )
        return response

    def _refusal(self, request: web.Request, status: int, error: NanobotError) -> web.Response:
        if "text/html" not in request.headers.get("Accept", ""):
            data = {"error": str(error), "hint": error.hint}
            return web.Response(
                status=status, text=json.dumps(data), content_type="application/json"
            )
        text = self.render("refusal.html", status=status, error=str(error), hint=error.hint)
        headers = {"Clear-Site-Data": '"storage"'} if status == 401 else {}  # the offline page
        return web.Response(status=status, text=text, content_type="text/html", headers=headers)

    def _scheme(self, request: web.Request) -> str:
        declared = urlsplit(self._options.address).hostname
        name, _ = _name_and_port(request)
        return "https" if declared is not None and name == declared else "http"

    def _cookie(self, request: web.Request) -> str:
        """Return the cookie's name, with the port, because cookies do not distinguish ports. With
        encryption, no other host of the same domain can set it (`__Host-`)."""
        scheme = self._scheme(request)
        name = f"nanobot-{_name_and_port(request)[1] or scheme}"
        return f"__Host-{name}" if scheme == "https" else name


def _name_and_port(request: web.Request) -> tuple[str, int | None]:
    """Return the name and port of the requested host. Raises `PageError` if they are invalid."""
    try:
        place = urlsplit(f"//{request.host}")
        name, port = place.hostname or "", place.port
    except ValueError:
        raise PageError(400, "The host name is invalid.") from None
    return name, port
