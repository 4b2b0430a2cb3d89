"""Servers on this machine: model servers are found among other listeners."""

from __future__ import annotations

import asyncio

import pytest

from nanobot.providers.discovery import (
    LocalServer,
    ModelServer,
    find_local_servers,
)
from tests.doubles.openai.server import MODEL, FakeOpenAI


async def test_only_what_serves_models_is_found() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-nothing\r\n")
        writer.close()

    other = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    gone = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    ports = [server.sockets[0].getsockname()[1] for server in (other, gone)]
    gone.close()
    await gone.wait_closed()
    async with other, FakeOpenAI() as server:
        port = int(server.base_url.rpartition(":")[2].partition("/")[0])
        places = (("Other", ports[0]), ("Gone", ports[1]), ("Ours", port))
        found = await find_local_servers(places, seconds=20.0)
    assert found == (LocalServer("Ours", server.base_url, (MODEL,)),)


OTHERS = (
    "text-embedding-3-small", "whisper-1", "tts-1-hd", "gpt-4o-mini-tts", "gpt-4o-transcribe",
    "gpt-realtime", "gpt-4o-realtime-preview", "dall-e-3", "gpt-image-1", "sora-2",
    "omni-moderation-latest", "babbage-002", "davinci-002", "gpt-3.5-turbo-instruct",
    "nomic-embed-text:latest", "mxbai-embed-large", "snowflake-arctic-embed2", "bge-m3:567m",
    "all-minilm:latest", "embeddinggemma", "qwen3-embedding:8b", "paraphrase-multilingual",
    "granite-embedding:30m", "BAAI/bge-large-en-v1.5", "intfloat/e5-mistral-7b-instruct",
    "jinaai/jina-embeddings-v3", "sentence-transformers/all-MiniLM-L6-v2", "thenlper/gte-large",
    "whisper-large-v3-turbo", "playai-tts", "Qwen/Qwen3-Reranker-8B", "grok-2-image-1212",
    "grok-imagine-video", "text-embedding-nomic-embed-text-v1.5",
)  # fmt: skip
"""As in the lists of OpenAI, Ollama, LM Studio, vLLM, Groq and xAI."""
CHATS = (
    "gpt-5-mini", "gpt-4o", "o4-mini", "qwen3:8b", "llama3.2:latest", "gemma3:4b", "phi4-mini",
    "mistral-small3.2", "deepseek-r1:14b", "openai/gpt-oss-120b", "Qwen/Qwen3-8B", "grok-4.3",
    "/srv/embeddings/models/qwen3-8b-q4.gguf", "smollm2:360m", "moonshotai/kimi-k2-instruct",
    "meta-llama/llama-4-maverick-17b-128e-instruct", "granite4:tiny-h", "command-r",
)  # fmt: skip


async def test_models_that_are_for_other_things_are_not_offered_for_a_chat() -> None:
    async with FakeOpenAI(models=(*OTHERS, *CHATS)) as server:
        chats = await ModelServer(server.base_url, "", 5).models()
        every = await ModelServer(server.base_url, "", 5).models(every=True)
    assert tuple(one.name for one in chats) == CHATS
    assert [one.name for one in every] == [*OTHERS, *CHATS]


async def test_the_type_in_a_list_says_it_too() -> None:
    types = {"a": "chat", "b": "embedding", "c": "rerank", "d": "image", "e": "language"}
    pages = {"/v1/models": {"data": [{"id": name, "type": kind} for name, kind in types.items()]}}
    async with FakeOpenAI(pages=pages) as server:
        models = await ModelServer(server.base_url, "", 5).models()
    assert [one.name for one in models] == ["a", "e"]


@pytest.mark.parametrize("models", [("nomic-embed-text:latest",), ()])
async def test_a_server_without_a_model_for_a_chat_is_found_all_the_same(
    models: tuple[str, ...],
) -> None:
    async with FakeOpenAI(models=models) as server:
        port = int(server.base_url.rpartition(":")[2].partition("/")[0])
        found = await find_local_servers((("Ollama", port),), seconds=20.0)
    assert found == (LocalServer("Ollama", server.base_url, ()),)
