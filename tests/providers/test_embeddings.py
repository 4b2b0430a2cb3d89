"""Embeddings from a real HTTP server arrive in order, despite its faults."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from nanobot.errors import (
    ContextTooLong,
    ProviderGarbage,
    ProviderRejected,
    ProviderUnavailable,
)
from nanobot.memory.search import Embedder
from nanobot.providers.embeddings import OpenAIEmbedder
from nanobot.providers.endpoint import Endpoint
from nanobot.testing import FakeClock
from tests.doubles.openai.answers import Raw, Step
from tests.doubles.openai.embeddings import vector
from tests.doubles.openai.faults import busy, server_error
from tests.doubles.openai.server import FakeOpenAI


def embedder(server: FakeOpenAI, **options: int) -> OpenAIEmbedder:
    return OpenAIEmbedder(
        Endpoint(server.base_url, "small", "sk-secret", settings="memory.embeddings"),
        FakeClock(auto=True),
        batch=options.get("batch", 64),
        characters=options.get("characters", 6_000),
    )


def inputs(server: FakeOpenAI) -> list[Sequence[str]]:
    found: list[Sequence[str]] = []
    for request in server.requests:
        texts = request.body["input"]
        assert isinstance(texts, list)
        found.append(texts)
    return found


def answer(*items: object) -> Raw:
    return Raw(json.dumps({"data": list(items)}).encode())


async def test_vectors_come_in_the_order_of_the_texts_over_several_batches() -> None:
    async with FakeOpenAI() as server:
        model: Embedder = (asked := embedder(server, batch=2))
        vectors = await model.embed(["blue boat", "red car", "绿茶"])
        assert vectors == [
            pytest.approx(vector("blue boat")),
            pytest.approx(vector("red car")),
            pytest.approx(vector("绿茶")),
        ]
        assert [len(batch) for batch in inputs(server)] == [2, 1]
        assert server.requests[0].headers["authorization"] == "Bearer sk-secret"
        await asked.close()


async def test_no_texts_cost_no_request() -> None:
    async with FakeOpenAI() as server:
        assert await embedder(server).embed([]) == []
        assert server.requests == []


async def test_an_answer_out_of_order_is_put_in_order() -> None:
    mixed = answer({"index": 1, "embedding": [1, 2]}, {"index": 0, "embedding": [3, 4]})
    async with FakeOpenAI(embedding_faults=[mixed]) as server:
        asked = embedder(server)
        assert await asked.embed(["a", "b"]) == [[3.0, 4.0], [1.0, 2.0]]
        await asked.close()


async def test_texts_that_servers_refuse_are_made_sendable() -> None:
    async with FakeOpenAI() as server:
        asked = embedder(server, characters=10)
        assert len(await asked.embed(["", "  ", "x" * 50, "lone \udce9 one"])) == 4
        assert inputs(server) == [["(empty)", "(empty)", "x" * 10, "lone ? one"]]
        await asked.close()


async def test_a_text_too_long_for_the_model_loses_its_end_and_spares_the_others() -> None:
    async with FakeOpenAI(context_tokens=200) as server:
        asked = embedder(server)
        vectors = await asked.embed(["short", "word " * 1_000, "other"])
        assert vectors[0] == pytest.approx(vector("short"))
        assert vectors[2] == pytest.approx(vector("other"))
        await asked.close()


async def test_a_model_that_takes_no_text_at_all_is_an_error_not_a_loop() -> None:
    refusal = Raw(b'{"error":{"code":"context_length_exceeded","message":"no"}}', 400)
    async with FakeOpenAI(embedding_faults=[refusal] * 40) as server:
        asked = embedder(server)
        with pytest.raises(ContextTooLong):
            await asked.embed(["word " * 500])
        assert len(server.requests) < 10
        await asked.close()


@pytest.mark.parametrize("fault", [busy(2), server_error(503), Raw(b"<html>"), answer()])
async def test_trouble_that_passes_is_waited_out(fault: Step) -> None:
    async with FakeOpenAI(embedding_faults=[fault]) as server:
        asked = embedder(server)
        assert await asked.embed(["a b"]) == [pytest.approx(vector("a b"))]
        assert len(server.requests) == 2
        await asked.close()


async def test_trouble_that_stays_is_raised_after_some_tries() -> None:
    async with FakeOpenAI(embedding_faults=[server_error()] * 500) as server:
        asked = embedder(server)
        with pytest.raises(ProviderUnavailable):
            await asked.embed(["a"])
        assert 1 < len(server.requests) < 100
        await asked.close()


async def test_where_somebody_waits_nothing_is_tried_twice() -> None:
    async with FakeOpenAI(embedding_faults=[server_error()] * 2) as server:
        asked = embedder(server)
        with pytest.raises(ProviderUnavailable):
            await asked.embed(["a"], question=True)
        assert len(server.requests) == 1
        await asked.close()


@pytest.mark.parametrize(
    "body",
    [
        answer({"index": 0, "embedding": []}),
        answer({"index": 0, "embedding": ["x"]}),
        answer({"index": 0, "embedding": [True]}),
        answer({"index": 7, "embedding": [1.0]}),
        Raw(b'{"data":[{"index":0,"embedding":[NaN]}]}'),
        Raw(b'{"data":{}}'),
    ],
)
async def test_what_is_no_vector_is_never_taken_for_one(body: Raw) -> None:
    async with FakeOpenAI(embedding_faults=[body] * 10) as server:
        asked = embedder(server)
        with pytest.raises(ProviderGarbage):
            await asked.embed(["a"])
        await asked.close()


async def test_the_largest_vectors_of_a_whole_batch_are_taken() -> None:
    texts = [f"text {number}" for number in range(64)]
    data = [{"index": index, "embedding": [0.5] * 8_192} for index in range(64)]
    body = Raw(json.dumps({"data": data}).encode())
    async with FakeOpenAI(embedding_faults=[body]) as server:
        asked = embedder(server)
        assert len(await asked.embed(texts)) == 64
        await asked.close()


async def test_a_wrong_key_is_said_once_and_not_repeated() -> None:
    async with FakeOpenAI(api_key="sk-right") as server:
        asked = embedder(server)
        with pytest.raises(ProviderRejected) as refused:
            await asked.embed(["a"])
        assert "memory.embeddings.api_key" in refused.value.hint
        assert "sk-secret" not in refused.value.for_people()
        assert len(server.requests) == 1
        await asked.close()


async def test_an_address_that_is_none_is_refused_before_any_request() -> None:
    endpoint = Endpoint("not an address", "m", settings="memory.embeddings")
    asked = OpenAIEmbedder(endpoint, FakeClock())
    with pytest.raises(ProviderRejected, match=r"memory\.embeddings\.base_url"):
        await asked.embed(["a"])


def test_the_name_tells_models_and_servers_apart_and_holds_no_secret() -> None:
    names = {
        OpenAIEmbedder(Endpoint(url, model, "k"), FakeClock()).name
        for url in ("http://user:pass@a/v1", "http://b/v1")
        for model in ("m", "n")
    }
    assert len(names) == 4
    assert not any("pass" in name for name in names)
