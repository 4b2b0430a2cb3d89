"""The `/embeddings` side of `FakeOpenAI`: vectors by the words of a text.

Each word (in other scripts, each character) has its own direction. So texts with common words are
near each other, and the same text always has the same vector."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping

from tests.doubles.openai.rules import ApiError

EMBEDDINGS = "/embeddings"
_LENGTH = 64
_MOST_INPUTS = 2048
_WORD = re.compile(r"[a-z0-9]+|[^\W_a-z0-9]")


def embeddings(body: Mapping[str, object], most_tokens: int = 0) -> bytes | ApiError:
    """Return the answer to a request, or the error of the real API."""
    texts = body.get("input")
    if isinstance(texts, str):
        texts = [texts]
    if not isinstance(body.get("model"), str):
        return ApiError(400, "you must provide a model parameter")
    if not isinstance(texts, list) or not texts or len(texts) > _MOST_INPUTS:
        return ApiError(400, f"'input' must be a list of 1 to {_MOST_INPUTS} strings", None)
    if not all(isinstance(text, str) and text for text in texts):
        return ApiError(400, "'$.input' is invalid: an input cannot be an empty string")
    if most_tokens and any(len(text) // 4 > most_tokens for text in texts):
        message = f"This model's maximum context length is {most_tokens} tokens."
        return ApiError(400, message, "context_length_exceeded")
    data = [
        {"object": "embedding", "index": index, "embedding": vector(text)}
        for index, text in enumerate(texts)
    ]
    return json.dumps({"object": "list", "model": body["model"], "data": data}).encode()


def vector(text: str) -> list[float]:
    """Return the direction of `text`, of length one."""
    sums = [0.0] * _LENGTH
    for word in _WORD.findall(text.lower()) or [""]:
        digest = hashlib.sha256(word.encode()).digest()
        for place in range(0, 8, 2):
            sums[digest[place] % _LENGTH] += 1.0 if digest[place + 1] & 1 else -1.0
    size = math.sqrt(sum(value * value for value in sums)) or 1.0
    return [value / size for value in sums]
