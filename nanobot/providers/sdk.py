"""Uploads to a model server by OpenAI's package, which makes their form: the only module that
imports `openai`.

The import takes half a second and 28 MiB, so it happens with the first upload, in a thread.
Everything else about a connection is as in `http`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from nanobot.errors import ProviderError
from nanobot.providers.http import Chunks, HttpConnection, root_cause

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI


class UploadConnection(HttpConnection):
    _client: AsyncOpenAI | None = None

    async def upload(
        self, path: str, fields: Mapping[str, str], file: tuple[str, bytes, str]
    ) -> Mapping[str, object]:
        """Send a form with the file (name, content, MIME type) as `file`. Return the JSON object of
        the answer. Raises `ProviderError`."""
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
                options={"headers": self._form_headers(), "follow_redirects": False},
                stream=True,
                stream_cls=openai.AsyncStream[Any],
            )
        except openai.APIConnectionError as error:
            raise self._not_answered(error) from error
        # Asked for the response itself, the package gives it, stream or not. Its types deny that.
        response = cast("httpx2.Response", answer)
        try:
            return await self._object(self._read(response))
        finally:
            await response.aclose()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        await super().close()

    def _open(self) -> AsyncOpenAI:
        """Raises as `_prepare` does. Blocks."""
        trusted = self._prepare()
        import httpx2
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        timeout = httpx2.Timeout(self._stall, connect=self._connect)
        return AsyncOpenAI(
            api_key=self.endpoint.api_key or "none",
            base_url=self.endpoint.base_url,
            max_retries=0,
            timeout=timeout,
            http_client=DefaultAsyncHttpxClient(
                timeout=timeout,
                verify=trusted,
                proxy=self._proxy,
                trust_env=False,
                event_hooks={"response": [self._refuse]},
            ),
        )

    def _form_headers(self) -> Mapping[str, Any]:
        import openai

        headers: dict[str, str | openai.Omit] = {
            "Accept-Encoding": "identity",  # no small answer becomes a large one
            "Content-Type": "multipart/form-data",
            "OpenAI-Organization": openai.Omit(),
            "OpenAI-Project": openai.Omit(),
        }
        own = self.endpoint.headers
        if own or urlsplit(self.endpoint.base_url).username is not None:
            headers |= {"Authorization": openai.Omit(), **(own or {})}
        return self.endpoint.with_own_headers(headers)

    async def _refuse(self, response: httpx2.Response) -> None:
        """Raise the error of an unsuccessful status before the package, which would read an endless
        body."""
        if not response.is_success:
            body = self._read(response)
            raise await self._refused(response.status_code, response.headers, body)

    def _not_answered(self, error: Exception) -> ProviderError:
        import httpx2
        import openai

        if isinstance(error.__cause__, httpx2.ConnectTimeout):
            return self.endpoint.unreachable(f"no connection within {self._connect:g} seconds")
        if isinstance(error.__cause__, httpx2.ConnectError):
            return self.endpoint.unreachable(root_cause(error))
        if isinstance(error, openai.APITimeoutError):
            return self.endpoint.stalled(self._stall)
        return self.endpoint.cut(root_cause(error))

    async def _read(self, response: httpx2.Response) -> Chunks:
        import httpx2

        try:
            async for chunk in response.aiter_bytes():
                yield chunk
        except httpx2.TimeoutException as error:
            raise self.endpoint.stalled(self._stall) from error
        except httpx2.HTTPError as error:
            raise self.endpoint.cut(root_cause(error)) from error
