"""A connection to a model server by aiohttp.

Failures are `ProviderError`s of the endpoint. No request is retried, no redirect followed, no
cookie kept, and the environment adds no headers. It only supplies certificates, and proxies for
remote servers. aiohttp is loaded in a thread at the first use of a connection."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import ssl
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from functools import cache, partial
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import SplitResult, unquote, urlsplit

from loguru import logger

from nanobot.errors import (
    ProviderError,
    ProviderUnavailable,
    root_cause,
)
from nanobot.providers.endpoint import Endpoint

if TYPE_CHECKING:
    import aiohttp
    import httpx2
    from openai import AsyncOpenAI

CONNECT_SECONDS = 15.0
_ERROR_BYTES = 64 * 1024  # read of an unsuccessful answer
_ANSWER_BYTES = 64 * 1024 * 1024
_PIECE_BYTES = 512 * 1024  # sent at once
_LONGEST_HEADER = 64 * 1024  # gateways send large ones
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_SOCKS, _SOCKS_PORT = ("socks5", "socks5h"), 1080
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

Chunks = AsyncGenerator[bytes, None]


class HttpConnection:
    """Client of one server, opened at the first use, and again after `close`.

    The connection must be made within `connect` seconds, and no more than `stall` may pass without
    a byte. With `finds_v1`, /v1 is tried too if the address has no path."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        stall: float,
        connect: float = CONNECT_SECONDS,
        finds_v1: bool = True,
    ) -> None:
        self.endpoint = endpoint
        url = parse_url(endpoint.base_url, "http", "https")
        self._prefix, self._is_unsure = "", finds_v1 and url is not None and not url.path.strip("/")
        self._stall, self._connect = stall, connect
        self._opening = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None
        self._proxy: str | None = None
        self._proxy_errors: tuple[type[Exception], ...] = ()
        """Errors of a SOCKS proxy."""

    @asynccontextmanager
    async def post(self, path: str, body: bytes) -> AsyncIterator[AsyncIterator[bytes]]:
        """Send `body`, which is JSON. The context is the body of the answer as it arrives."""
        async with self._request("POST", path, body) as chunks, aclosing(chunks):
            yield chunks

    async def ask(self, path: str, body: object = None) -> Mapping[str, object]:
        """Return the JSON object at `path`, or the answer to `body`, which is sent as JSON."""
        method, content = ("GET", b"") if body is None else ("POST", json.dumps(body).encode())
        seconds = 2 * self._stall  # for the whole answer, even if bytes trickle
        try:
            async with asyncio.timeout(seconds), self._request(method, path, content) as chunks:
                return await self._read_object(chunks)
        except TimeoutError as error:
            raise self.endpoint.stall_error(seconds) from error

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @asynccontextmanager
    async def _request(self, method: str, path: str, body: bytes) -> AsyncIterator[Chunks]:
        """Send JSON or nothing. The context is the body of a successful answer."""
        session = await self._open_session()
        import aiohttp

        try:
            response = await self._send(session, method, path, body)
            if response.status in (404, 405) and self._is_unsure:
                response.close()
                response = await self._find_v1(session, method, path, body)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._connection_error(error) from error
        except self._proxy_errors as error:
            raise self.endpoint.unreachable_error(f"the SOCKS proxy failed: {error}") from error
        except ValueError as error:
            raise self._address_error() from error
        async with response:
            chunks = self._read_chunks(response)
            if not 200 <= response.status < 300:
                raise await self._read_refusal(response.status, response.headers, chunks)
            self._is_unsure = False
            yield chunks

    async def _send(
        self, session: aiohttp.ClientSession, method: str, path: str, body: bytes
    ) -> aiohttp.ClientResponse:
        url = urlsplit(self.endpoint.base_url)
        path, host = url.path.rstrip("/") + self._prefix + path, url.netloc.rpartition("@")[2]
        return await session.request(
            method,
            url._replace(netloc=host, path=path, fragment="").geturl(),
            data=split_body(body) if body else None,
            headers=self._build_headers(body),
            allow_redirects=False,  # the target would get the key
            proxy=None if is_socks(self._proxy) else self._proxy,
        )

    async def _find_v1(
        self, session: aiohttp.ClientSession, method: str, path: str, body: bytes
    ) -> aiohttp.ClientResponse:
        """Try /v1, where most servers have their API, and use it from then on if it works."""
        response = await self._send(session, method, f"/v1{path}", body)
        if 200 <= response.status < 300:
            self._prefix, place = "/v1", f"{self.endpoint.place.rstrip('/')}/v1"
            setting = f"{self.endpoint.settings}.base_url"
            logger.warning("the model server answers at {}. Set {} to that address", place, setting)
        return response

    async def _read_refusal(
        self, status: int, headers: Mapping[str, str], chunks: Chunks
    ) -> ProviderError:
        """Return the error for an unsuccessful status. Only reads the beginning of the body, which
        may break off."""
        body = b""
        with suppress(ProviderUnavailable):
            async with aclosing(chunks):
                async for chunk in chunks:
                    body += chunk
                    if len(body) >= _ERROR_BYTES:
                        break
        lower = {name.lower(): value for name, value in headers.items()}
        return self.endpoint.refusal_error(status, lower, body[:_ERROR_BYTES])

    async def _read_object(self, chunks: Chunks) -> Mapping[str, object]:
        answer = bytearray()
        async with aclosing(chunks):
            async for chunk in chunks:
                answer += chunk
                if len(answer) > _ANSWER_BYTES:
                    raise self.endpoint.garbage_error("more data than expected")
        return self.endpoint.object_in(bytes(answer))

    async def _open_session(self) -> aiohttp.ClientSession:
        async with self._opening:
            if self._session is not None:
                return self._session
            trusted = await asyncio.to_thread(self._prepare)
            import aiohttp

            url = urlsplit(self._proxy or "")
            build: Callable[..., aiohttp.BaseConnector] = aiohttp.TCPConnector
            if is_socks(self._proxy):
                from aiohttp_socks import ProxyConnector  # already loaded by `_prepare`

                build = partial(
                    ProxyConnector,
                    host=url.hostname or "",
                    port=url.port or _SOCKS_PORT,
                    username=unquote(url.username) if url.username else None,
                    password=unquote(url.password) if url.password else None,
                    rdns=True,  # the proxy looks up the server's name
                )
            limits = aiohttp.ClientTimeout(total=None, connect=self._connect, sock_read=self._stall)
            self._session = aiohttp.ClientSession(
                connector=build(ssl=trusted, limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=limits,
                max_line_size=_LONGEST_HEADER,
                max_field_size=_LONGEST_HEADER,
            )
            return self._session

    def _prepare(self) -> ssl.SSLContext | bool:
        """Do everything that may fail or takes long, and return the certificates to trust: True for
        this machine's, which aiohttp loads anyway. Blocking. Raise `ProviderRejected`."""
        endpoint = self.endpoint
        if not (endpoint.api_key.isascii() and endpoint.api_key.isprintable()):
            raise endpoint.unusable_error(
                f"{endpoint.settings}.api_key contains characters that are invalid in an HTTP "
                "header",
                "Copy only the key, and paste it again.",
            )
        url = parse_url(endpoint.base_url, "http", "https")
        if url is None:
            raise self._address_error()
        importlib.import_module("aiohttp")
        self._proxy = self._find_proxy(url)
        if is_socks(self._proxy):
            socks = importlib.import_module("aiohttp_socks")
            self._proxy_errors = socks.ProxyError, socks.ProxyConnectionError
        return self._choose_certificates()

    def _choose_certificates(self) -> ssl.SSLContext | bool:
        file, folder = (os.environ.get(name, "") for name in _CERTIFICATES)
        try:
            return load_certificates(file, folder) if file or folder else True
        except OSError as error:
            name = _CERTIFICATES[0 if file else 1]
            raise self.endpoint.unusable_error(
                f"cannot use {name} ({file or folder}): {error.strerror or error}",
                f"Set {name} to the path of PEM certificates, or unset it. Then restart nanobot.",
            ) from error

    def _find_proxy(self, url: SplitResult) -> str | None:
        """Return the proxy for an address from the environment (`HTTPS_PROXY`, `ALL_PROXY`, …), or
        None. Raise `ProviderRejected` if it can't be used."""
        from urllib.request import getproxies_environment

        proxies = getproxies_environment()
        proxy = (proxies.get(url.scheme) or proxies.get("all") or "").strip()
        if not proxy or url.hostname in _LOOPBACK or bypasses_proxy(url, proxies.get("no", "")):
            return None
        proxy = proxy if "://" in proxy else f"http://{proxy}"
        if parse_url(proxy, "http", "https", *_SOCKS) is None:
            raise self.endpoint.unusable_error(
                "the proxy in the environment can't be used",  # it may hold a password
                "Set HTTPS_PROXY to an http or socks5 proxy, or add the server to NO_PROXY.",
            )
        return proxy

    def _build_headers(self, body: bytes) -> dict[str, str]:
        """Return the headers of a request. Session headers would go to proxies as well."""
        own, url = self.endpoint.headers, urlsplit(self.endpoint.base_url)
        authorization = f"Bearer {self.endpoint.api_key or 'none'}"
        if url.username is not None:  # for a proxy in front of the server
            pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
            authorization = f"Basic {b64encode(pair.encode()).decode()}"
        headers = {
            **(own or {"Authorization": authorization}),
            "Accept": "application/json",
            "Accept-Encoding": "identity",  # no decompression bombs
            "User-Agent": "nanobot",
        }
        if body:
            headers["Content-Length"] = str(len(body))
            headers["Content-Type"] = "application/json"
        return self.endpoint.with_own_headers(headers)

    async def _read_chunks(self, response: aiohttp.ClientResponse) -> Chunks:
        import aiohttp

        try:
            async for chunk in response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, aiohttp.ServerTimeoutError) as error:
            raise self._connection_error(error) from error

    def _connection_error(self, error: Exception) -> ProviderError:
        import aiohttp

        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return self.endpoint.unreachable_error(
                f"no connection within {self._connect:g} seconds"
            )
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return self.endpoint.unreachable_error(f"the proxy answered with status {error.status}")
        if isinstance(error, aiohttp.ClientConnectorError):
            return self.endpoint.unreachable_error(root_cause(error))
        if isinstance(error, TimeoutError):
            return self.endpoint.stall_error(self._stall)
        return self.endpoint.cut_error(root_cause(error))

    def _address_error(self) -> ProviderError:
        return self.endpoint.unusable_error(
            f"{self.endpoint.settings}.base_url is not an http or https address",
            "Use an address such as https://api.example.com/v1.",
        )


class UploadConnection(HttpConnection):
    """Uploads by OpenAI's package, which builds their form. The import takes half a second and 28
    MiB, so it is done in a thread at the first upload."""

    _client: AsyncOpenAI | None = None

    async def upload(
        self, path: str, fields: Mapping[str, str], file: tuple[str, bytes, str]
    ) -> Mapping[str, object]:
        """Send a form with the file (name, content, MIME type) as `file`. Return the JSON object of
        the answer. Raise `ProviderError`."""
        async with self._opening:
            if self._client is None:
                self._client = await asyncio.to_thread(self._open)
        import httpx2
        import openai

        try:
            answer = await self._client.post(
                path,
                cast_to=httpx2.Response,
                body=fields,
                files={"file": file},
                options={"headers": self._build_form_headers(), "follow_redirects": False},
                stream=True,
                stream_cls=openai.AsyncStream[Any],
            )
        except openai.APIConnectionError as error:
            raise self._upload_error(error) from error
        # With this `cast_to` the package returns the response itself, contrary to its types.
        response = cast("httpx2.Response", answer)
        try:
            return await self._read_object(self._read_response(response))
        finally:
            await response.aclose()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        await super().close()

    def _open(self) -> AsyncOpenAI:
        """Raise the same errors as `_prepare`. Blocking."""
        trusted = self._prepare()
        import httpx2
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        timeout = httpx2.Timeout(self._stall, connect=self._connect)
        return AsyncOpenAI(
            api_key=self.endpoint.api_key or "none",
            base_url=self.endpoint.base_url,
            max_retries=0,  # the caller retries
            timeout=timeout,
            http_client=DefaultAsyncHttpxClient(
                timeout=timeout,
                verify=trusted,
                proxy=self._proxy,
                trust_env=False,  # proxies come from `_find_proxy`
                event_hooks={"response": [self._refuse]},
            ),
        )

    def _build_form_headers(self) -> Mapping[str, Any]:
        import openai

        headers: dict[str, str | openai.Omit] = {
            "Accept-Encoding": "identity",  # no decompression bombs
            "Content-Type": "multipart/form-data",
            "OpenAI-Organization": openai.Omit(),
            "OpenAI-Project": openai.Omit(),
        }
        own = self.endpoint.headers
        if own or urlsplit(self.endpoint.base_url).username is not None:
            headers |= {"Authorization": openai.Omit(), **(own or {})}
        return self.endpoint.with_own_headers(headers)

    async def _refuse(self, response: httpx2.Response) -> None:
        """Raise the error of an unsuccessful status before the package reads a possibly endless
        body."""
        if not response.is_success:
            body = self._read_response(response)
            raise await self._read_refusal(response.status_code, response.headers, body)

    def _upload_error(self, error: Exception) -> ProviderError:
        import httpx2
        import openai

        if isinstance(error.__cause__, httpx2.ConnectTimeout):
            return self.endpoint.unreachable_error(
                f"no connection within {self._connect:g} seconds"
            )
        if isinstance(error.__cause__, httpx2.ConnectError):
            return self.endpoint.unreachable_error(root_cause(error))
        if isinstance(error, openai.APITimeoutError):
            return self.endpoint.stall_error(self._stall)
        return self.endpoint.cut_error(root_cause(error))

    async def _read_response(self, response: httpx2.Response) -> Chunks:
        import httpx2

        try:
            async for chunk in response.aiter_bytes():
                yield chunk
        except httpx2.TimeoutException as error:
            raise self.endpoint.stall_error(self._stall) from error
        except httpx2.HTTPError as error:
            raise self.endpoint.cut_error(root_cause(error)) from error


async def split_body(body: bytes) -> AsyncIterator[memoryview]:
    """Yield a request in pieces. A large one would block everything else."""
    view = memoryview(body)
    for start in range(0, len(body), _PIECE_BYTES):
        yield view[start : start + _PIECE_BYTES]


def is_socks(proxy: str | None) -> bool:
    return urlsplit(proxy or "").scheme in _SOCKS


def parse_url(text: str, *schemes: str) -> SplitResult | None:
    """Return the parts of an address with one of these schemes, or None."""
    try:
        url = urlsplit(text)
        usable = url.scheme in schemes and url.hostname and url.port != 0
    except ValueError:
        usable = False
    return url if usable else None


def bypasses_proxy(url: SplitResult, exceptions: str) -> bool:
    """Return True if `NO_PROXY` names the host: by its name or a domain around it (`example.org`,
    `.example.org`, `*.example.org`), with or without its port, by its address, or by a network."""
    host, port = url.hostname or "", url.port or {"http": 80, "https": 443}[url.scheme]
    return any(
        matches_host(entry, host, port) for entry in exceptions.lower().replace(",", " ").split()
    )


def matches_host(entry: str, host: str, port: int) -> bool:
    # urllib ignores networks in NO_PROXY, which companies use for internal servers.
    with suppress(ValueError):
        network = ip_network(entry.strip("[]"), strict=False)
        with suppress(ValueError):
            return ip_address(host) in network
        return False
    name, colon, digits = entry.rpartition(":")
    if colon and digits != str(port):
        return False
    name = (name if colon else entry).strip("[]").removeprefix("*.").removeprefix(".")
    return name == "*" or f".{host}".endswith(f".{name}")


@cache
def load_certificates(file: str, folder: str) -> ssl.SSLContext:
    """Return the certificates in these places. Loading takes up to 100 ms, so they are shared."""
    return ssl.create_default_context(cafile=file or None, capath=folder or None)
