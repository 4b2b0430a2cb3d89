"""Named models, their uses, and the owner's fields in requests."""

from __future__ import annotations

import pytest

from nanobot.config.changes import widens_security
from nanobot.config.document import ConfigDocument
from nanobot.config.load import load_with_places
from nanobot.config.model import PriceSettings
from nanobot.config.schema import is_hidden, list_keys
from nanobot.config.values import plain_values, secrets_in
from tests.config.homes import Home

MAIN = (
    "model:\n"
    "  name: main\n"
    "  base_url: https://one.example/v1\n"
    "  api_key: key-one\n"
    "  reasoning_effort: low\n"
    "  temperature: 0.5\n"
    "  context_window: 64000\n"
    "  extra_body: {top_k: 20}\n"
    "  headers: {X-Team: ops-7f3a}\n"
    "  prices: {input: 2, output: 8}\n"
)


def test_a_named_model_takes_the_rest_from_the_main_one(home: Home) -> None:
    home.write(MAIN + "models:\n  small: tiny\n  thinker: {reasoning_effort: high}\n")
    settings = home.load()
    small, thinker = (one.fill_from(settings.model) for one in settings.models.values())
    assert (small.name, small.base_url, small.reasoning_effort) == (
        "tiny", "https://one.example/v1", "low",
    )  # fmt: skip
    assert small.api_key == settings.model.api_key
    assert (small.temperature, small.context_window) == (0.5, 64_000)
    assert plain_values(small.headers) == {"X-Team": "ops-7f3a"}
    assert small.extra_body == {"top_k": 20}
    assert (thinker.name, thinker.reasoning_effort) == ("main", "high")
    # Another model has other prices, the same model has the same.
    assert (small.prices, thinker.prices.input) == (PriceSettings(), 2)


@pytest.mark.parametrize("kind", ["models", "fallbacks"])
def test_key_headers_and_fields_stay_at_the_server_that_they_were_set_for(
    home: Home, kind: str
) -> None:
    far = "{name: far, base_url: 'https://two.example/v1'}"
    home.write(MAIN + (f"models: {{far: {far}}}\n" if kind == "models" else ""))
    settings = home.load({} if kind == "models" else {"NANOBOT_MODEL__FALLBACKS": f"[{far}]"})
    named = settings.models["far"] if kind == "models" else settings.model.fallbacks[0]
    other = named.fill_from(settings.model)
    assert (other.api_key.get_secret_value(), other.headers, other.extra_body) == ("", {}, {})
    assert (other.api, other.temperature) == ("chat", 0.5)


def test_fields_of_requests_are_numbers_and_truths_as_json_has_them(home: Home) -> None:
    home.write(
        "model:\n  extra_body:\n    top_p: 0.9\n    think: false\n    mode: fast\n"
        "    provider: {order: [a, b], seed: 7}\n    word: '\"20\"'\n    odd: NaN\n"
    )
    assert home.load().model.extra_body == {
        "top_p": 0.9,
        "think": False,
        "mode": "fast",
        "provider": {"order": ["a", "b"], "seed": 7},
        "word": "20",
        "odd": "NaN",
    }


def test_a_model_can_be_given_by_variables_alone(home: Home) -> None:
    environ = {"NANOBOT_MODELS__FAST__NAME": "tiny", "NANOBOT_USE__MEMORY": "fast"}
    settings = home.load({**environ, "NANOBOT_MODEL__BASE_URL": "http://127.0.0.1:1/v1"})
    assert settings.models["fast"].name == "tiny"
    assert settings.use.memory == "fast"


def test_header_values_are_secrets_unless_they_are_plain_words(home: Home) -> None:
    home.write(
        "model:\n  base_url: http://127.0.0.1:1/v1\n"
        "  headers: {Authorization: 'Bearer ${T}', X-Title: nanobot}\n"
        "models: {far: {name: f, base_url: 'http://127.0.0.1:2/v1', api_key: key-2}}\n"
    )
    settings = home.load({"T": "canary-7f3a91"})
    found = [secret.get_secret_value() for _, secret in secrets_in(settings)]
    assert {"Bearer canary-7f3a91", "key-2"} <= {*found}
    assert "nanobot" not in found
    assert "canary" not in repr(settings)
    assert is_hidden(("models", "far", "api_key"), "key-2")
    assert not is_hidden(("models", "far", "name"), "f")


def test_the_keys_of_named_models_are_listed_with_their_lines(home: Home) -> None:
    home.write(MAIN + "models:\n  small:\n    name: tiny\n    api_key: canary\n")
    settings, document = load_with_places(home.folder, {})
    assert isinstance(document, ConfigDocument)
    found = {info.key: info for info in list_keys(settings, document)}
    assert (found["models.small.name"].value, found["models.small.name"].line) == ("tiny", 13)
    assert found["models.small.api_key"].value == "…"


def test_the_page_may_choose_among_the_models_but_not_where_they_are() -> None:
    assert not widens_security(("use", "chat"))
    assert not widens_security(("model", "reasoning_effort"))
    for key in ("headers", "extra_body", "api", "base_url"):
        assert widens_security(("model", key))
    assert widens_security(("models", "far", "name"))


WRONG = [
    (
        "use: {chat: fats}\nmodels: {fast: a}\n",
        "HOME/config.yaml:3: use.chat: is not a model in `models`\n  Did you mean 'fast'?",
    ),
    (
        "use: {jobs: fast}\n",
        "HOME/config.yaml:3: use.jobs: is not a model in `models`\n"
        "  Add it under `models`, with a name.",
    ),
    (
        "models: {my fast: a}\n",
        "HOME/config.yaml:3: models.my fast: must be a short name without spaces, other than"
        " `default`\n  Use letters, digits, '.', '_', and '-', as in `fast`.",
    ),
    (
        "models:\n  a: {nmae: b}\n",
        "HOME/config.yaml:4: models.a.nmae: there is no such key\n  Did you mean 'name'?",
    ),
    (
        "models:\n  a: {context_window: 4096, max_completion_tokens: 4000}\n",
        "HOME/config.yaml:4: models.a.context_window: leaves 0 tokens for the prompt, "
        "which needs 2,000\n",
    ),
    (
        "models:\n  a: {name: gpt-5, base_url: 'https://api.openai.com/v1'}\n",
        "HOME/config.yaml:4: models.a.api_key: is required by the official OpenAI API\n",
    ),
    (
        "  extra_body: {messages: []}\n",
        "HOME/config.yaml:3: model.extra_body: must not set `messages`, which nanobot sets\n"
        "  Remove it.",
    ),
    (
        "  headers: {Content-Length: 1}\n",
        "HOME/config.yaml:3: model.headers: must not set `Content-Length`, which nanobot sets\n"
        "  Remove it.",
    ),
    (
        "  reasoning_effort: hihg\n",
        "HOME/config.yaml:3: model.reasoning_effort: must be 'none', 'low', 'medium' or 'high'\n"
        "  Did you mean 'high'?",
    ),
    ("  temperature: 3\n", "HOME/config.yaml:3: model.temperature: must be at most 2"),
]


@pytest.mark.parametrize(("text", "expected"), WRONG, ids=[text for text, _ in WRONG])
def test_a_mistake_is_named_with_its_line_and_the_fix(home: Home, text: str, expected: str) -> None:
    complaint = home.complaint(f"model:\n  base_url: http://127.0.0.1:1/v1\n{text}")
    assert complaint.startswith(expected)
