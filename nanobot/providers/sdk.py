"""The other way to a model server, by the official SDK: the only module that imports `openai`.

It knows forms of requests that we do not make ourselves, such as uploads. Importing it takes half a
second and 28 MiB, so that happens when a connection is first used, in a thread. Request bodies go
in as bytes, past the typed transform (150 ms for a thousand messages), and answers come out as
bytes. See `http` for what holds for both ways.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from nanobot.providers.endpoint import Endpoint
from nanobot.providers.http import CONNECT_SECONDS, Chunks, Connection, root_cause

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI


class SdkConnection(Connection):
    """See `Connection`."""

    def __init__(
        self, endpoint: Endpoint, *, stall: float, connect: float = CONNECT_SECONDS
    ) -> None:
        super().__init__(endpoint, stall=stall, connect=connect)
        self._client: AsyncOpenAI | None = None

    async def upload(
        self, path: str, fields: Mapping[str, str], file: tuple[str, bytes, str]
    ) -> Mapping[str, object]:
        """Send a form with the file (name, content, MIME type) as `file`; the JSON object of the
        answer."""
        async with self._answer("POST", path, body=fields, files={"file": file}) as chunks:
            return await self._object(chunks)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    @asynccontextmanager
    async def _request(self, method: str, path: str, body: bytes) -> AsyncIterator[Chunks]:
        request = {"content": body} if body else {}
        async with self._answer(method, path, **request) as chunks:
            yield chunks

    @asynccontextmanager
    async def _answer(self, method: str, path: str, **request: Any) -> AsyncIterator[Chunks]:
        async with self._opening:
            if self._client is None:
                self._client = await asyncio.to_thread(self._open)
        response = await self._send(self._client, method, path, request)
        try:
            yield self._chunks(response)
        finally:
            await response.aclose()

    def _open(self) -> AsyncOpenAI:
        """Raises as `_address` and `_certificates` do. Blocks."""
        url = self._address()
        import httpx2
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        timeout = httpx2.Timeout(self._stall, connect=self._connect)
        return AsyncOpenAI(
            api_key=self._endpoint.api_key or "none",
            base_url=self._endpoint.base_url,
            max_retries=0,
            timeout=timeout,
            http_client=DefaultAsyncHttpxClient(
                timeout=timeout,
                verify=self._certificates(),
                proxy=self._proxy_for(url),
                trust_env=False,
                event_hooks={"response": [self._refuse]},
            ),
        )

    async def _refuse(self, response: httpx2.Response) -> None:
        """Raise what a status other than success means, before the package, which would read an
        endless body."""
        if not response.is_success:
            chunks = self._chunks(response)
            raise await self._refused(response.status_code, response.headers, chunks)

    async def _send(
        self, client: AsyncOpenAI, method: str, path: str, request: Mapping[str, Any]
    ) -> httpx2.Response:
        import httpx2
        import openai

        headers: dict[str, str | openai.Omit] = {
            "Accept-Encoding": "identity",  # no small answer becomes a large one
            "OpenAI-Organization": openai.Omit(),
            "OpenAI-Project": openai.Omit(),
        }
        if own := self._endpoint.headers:
            headers |= {"Authorization": openai.Omit(), **own}
        if "files" in request:
            headers["Content-Type"] = "multipart/form-data"
        ask: Any = client.post if method == "POST" else client.get
        try:
            answer = await ask(
                path,
                cast_to=httpx2.Response,
                options={
                    "headers": self._endpoint.with_own_headers(headers),
                    "follow_redirects": False,
                },
                stream=True,
                stream_cls=openai.AsyncStream[Any],
                **request,
            )
        except openai.APIConnectionError as error:
            if isinstance(error.__cause__, httpx2.ConnectTimeout):
                reason = f"no connection within {self._connect:g} seconds"
                raise self._endpoint.unreachable(reason) from error
            if isinstance(error.__cause__, httpx2.ConnectError):
                raise self._endpoint.unreachable(root_cause(error)) from error
            if isinstance(error, openai.APITimeoutError):
                raise self._endpoint.stalled(self._stall) from error
            raise self._endpoint.cut(root_cause(error)) from error
        # Asked for the response itself, the package gives it, stream or not; its types deny that.
        return cast("httpx2.Response", answer)

    async def _chunks(self, response: httpx2.Response) -> Chunks:
        import httpx2

        try:
            async for chunk in response.aiter_bytes():
                yield chunk
        except httpx2.TimeoutException as error:
            raise self._endpoint.stalled(self._stall) from error
        except httpx2.HTTPError as error:
            raise self._endpoint.cut(root_cause(error)) from error
