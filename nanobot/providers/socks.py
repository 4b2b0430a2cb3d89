"""Connections through a SOCKS5 proxy, which looks up the names of servers itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from aiohttp import ClientProxyConnectionError
from aiohttp_socks import ProxyConnectionError, ProxyConnector, ProxyError, ProxyTimeoutError

if TYPE_CHECKING:
    from aiohttp import ClientRequest, ClientTimeout
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

_PORT = 1080


class SocksConnector(ProxyConnector):
    """`proxy` is the proxy's address, `options` go to aiohttp's connector. Raises aiohttp's
    errors."""

    def __init__(self, proxy: str, **options: Any) -> None:
        url = urlsplit(proxy)
        super().__init__(
            host=url.hostname or "",
            port=url.port or _PORT,
            username=unquote(url.username) if url.username else None,
            password=unquote(url.password) if url.password else None,
            rdns=True,
            **options,
        )

    async def connect(
        self, req: ClientRequest, traces: Sequence[Trace], timeout: ClientTimeout
    ) -> Connection:
        """See `aiohttp.BaseConnector`."""
        try:
            return await super().connect(req, list(traces), timeout)
        except (ProxyError, ProxyConnectionError, ProxyTimeoutError) as error:
            cause = OSError(f"the SOCKS proxy: {error}")
            raise ClientProxyConnectionError(req.connection_key, cause) from cause
