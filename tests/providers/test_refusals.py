"""The reason of a refusal is read in every shape that servers use."""

from __future__ import annotations

import json
import re

import pytest

from nanobot.errors import (
    ContextTooLong,
    ProviderBusy,
    ProviderError,
    ProviderGarbage,
    ProviderRejected,
    ProviderUnavailable,
    RequestBlamed,
    ToolUseFailed,
)
from nanobot.providers.endpoint import Endpoint
from nanobot.providers.refusals import ErrorBody, error_in
from tests.growth import assert_linear

HERE = Endpoint("http://127.0.0.1:9/v1", "m-1")
UPSTREAM = '{"error":{"message":"at most 1 image per prompt","code":"bad_image"}}'

SHAPES: dict[str, tuple[object, str]] = {
    "error.message": ({"error": {"message": "no such tool", "type": "t", "code": "c"}}, ""),
    "error as text": ({"error": "no such tool"}, ""),
    "error beside a message": (
        {"error": "Unauthorized", "message": "the key is old"},
        "Unauthorized: the key is old",
    ),
    "message": ({"object": "error", "message": "no such tool", "code": 400}, ""),
    "code and message": ({"code": "1210", "message": "no such tool"}, ""),
    "msg": ({"code": 10012, "msg": "no such tool"}, ""),
    "status and msg (iFlow)": ({"status": "435", "msg": "no such tool", "body": None}, ""),
    "base_resp (MiniMax)": (
        {"choices": None, "base_resp": {"status_code": 2013, "status_msg": "no such tool"}},
        "",
    ),
    "detail": ({"detail": "no such tool"}, ""),
    "a list of details (FastAPI)": (
        {
            "detail": [
                {"type": "missing", "loc": ["body", "messages", 0, "role"], "msg": "is missing"},
                {"type": "int", "loc": ["body", "top_k"], "msg": "is no number"},
            ]
        },
        "messages.0.role: is missing; top_k: is no number",
    ),
    "an array around it (Gemini)": (
        [{"error": {"code": 400, "message": "no such tool", "status": "INVALID_ARGUMENT"}}],
        "",
    ),
    "a list of errors (Cloudflare)": (
        {"success": False, "errors": [{"code": 7009, "message": "no such tool"}], "result": None},
        "",
    ),
    "OpenRouter, JSON in text": (
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {"raw": UPSTREAM, "provider_name": "Crucible"},
            }
        },
        "Crucible: at most 1 image per prompt",
    ),
    "OpenRouter, an event in text": (
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {"raw": f"data: {UPSTREAM}\n\n", "provider_name": "Alibaba"},
            }
        },
        "Alibaba: at most 1 image per prompt",
    ),
    "OpenRouter, plain text": (
        {
            "error": {
                "message": "Provider returned error",
                "code": 429,
                "metadata": {"raw": "glm is rate-limited upstream", "provider_name": "BaseTen"},
            }
        },
        "BaseTen: glm is rate-limited upstream",
    ),
    "OpenRouter, no reason but a name": (
        {
            "error": {
                "message": "Provider returned error",
                "code": 502,
                "metadata": {"provider_name": "Acme"},
            }
        },
        "Acme returned an error without a reason",
    ),
    "OpenRouter, nothing": (
        {"error": {"message": "Provider returned error", "code": 502}},
        "the model's provider returned an error without a reason",
    ),
    "JSON inside a message": ({"error": {"message": json.dumps({"error": "no such tool"})}}, ""),
    "JSON behind words (proxies)": (
        {"detail": "Hosted_vllmException - " + json.dumps({"message": "no such tool"})},
        "Hosted_vllmException - no such tool",
    ),
    "a sentence as the parameter": (
        {"error": {"message": "Param Incorrect", "param": "max_tokens is too large: 9"}},
        "Param Incorrect: max_tokens is too large: 9",
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_reason_is_found_in_every_shape(shape: str) -> None:
    body, reason = SHAPES[shape]
    error = HERE.refusal_error(400, {}, json.dumps(body).encode())
    assert (reason or "no such tool") in str(error)
    assert "{" not in str(error)
    assert "returned error" not in str(error)


@pytest.mark.parametrize(
    "body",
    [
        # Tencent Cloud, Spark, HyperCLOVA X, AWS, problem details (RFC 9457), zod, XML, nginx
        '{"Response":{"Error":{"Code":"FailedOperation","Message":"no such tool"}}}',
        '{"header":{"code":10163,"message":"no such tool","sid":"x"}}',
        '{"status":{"code":"40003","message":"no such tool"},"result":null}',
        '{"Message":"no such tool"}',
        '{"type":"about:blank","title":"no such tool","status":400}',
        '{"success":false,"error":{"issues":[{"message":"no such tool"}],"name":"ZodError"}}',
        "<?xml version='1.0'?><Error><Message>no such tool</Message></Error>",
        "<html><head><title>400</title><style>a>b{}</style></head><body><h1>400 Bad Request</h1>"
        "<p>no such tool</p><hr><center>nginx</center></body></html>",
        'data: {"error":{"message":"no such tool"}}\n\ndata: [DONE]\n\n',
    ],
)
def test_the_reason_is_found_in_shapes_of_other_apis_and_in_pages(body: str) -> None:
    error = HERE.refusal_error(400, {}, body.encode())
    assert type(error) is ProviderRejected
    assert "no such tool" in str(error)
    assert not {"{", "<"} & set(str(error))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_shapes_are_errors_with_status_200(shape: str) -> None:
    body, reason = SHAPES[shape]
    if not isinstance(body, dict):
        return
    said = error_in(body)
    assert said is not None
    assert said.message == (reason or "no such tool")
    with pytest.raises(ProviderError, match=re.escape(reason or "no such tool")):
        HERE.object_in(json.dumps(body).encode())


@pytest.mark.parametrize(
    "fields",
    [
        {"choices": [{"index": 0, "delta": {"content": "x"}}], "error": None},
        {"choices": [{"message": {"content": "x"}}], "base_resp": {"status_code": 0}},
        {"choices": [], "usage": {"prompt_tokens": 3}},
        {"choices": [], "base_resp": {"status_code": 0, "status_msg": "success"}},
        {"message": {"role": "assistant", "content": "x"}},
        {"code": 0, "message": "success"},
        {"status": "200", "msg": "ok"},
        {"object": "list", "data": [{"id": "m"}]},
        {"text": "hello", "message": "transcribed"},
        {"status": "ok"},
        {"error": {}},
        {},
    ],
)
def test_a_completion_is_no_error(fields: dict[str, object]) -> None:
    assert error_in(fields) is None


@pytest.mark.parametrize(
    ("fields", "kind", "status"),
    [
        ({"error": {"message": "x", "code": 429}}, ProviderBusy, 0),
        ({"error": {"message": "Overloaded", "type": "overloaded_error"}}, ProviderUnavailable, 0),
        ({"error": "boom"}, ProviderGarbage, 0),
        ({"choices": [{"error": {"message": "x", "code": 502}}]}, ProviderUnavailable, 0),
        ({"base_resp": {"status_code": 1002, "status_msg": "rate limit"}}, ProviderBusy, 0),
        ({"base_resp": {"status_code": 1004, "status_msg": "login fail"}}, ProviderRejected, 401),
        ({"base_resp": {"status_code": 1008, "status_msg": "no balance"}}, ProviderRejected, 402),
        ({"error": "Incorrect API key provided"}, ProviderRejected, 401),
        ({"error": "Unexpected endpoint or method. (POST /x)"}, ProviderRejected, 404),
        ({"message": "insufficient balance", "code": 7}, ProviderRejected, 402),
        ({"message": "Jinja Exception: roles must alternate"}, ProviderRejected, 400),
        ({"status": "449", "msg": "You exceeded your current rate limit"}, ProviderBusy, 0),
    ],
)
def test_an_error_with_status_200_is_decided_by_its_meaning(
    fields: dict[str, object], kind: type[ProviderError], status: int
) -> None:
    said = error_in(fields)
    assert said is not None
    error = HERE.body_error(said)
    assert type(error) is kind
    assert not status or (isinstance(error, ProviderRejected) and error.status == status)


def test_an_overflow_that_openrouter_passes_on_is_acted_on() -> None:
    raw = {"error": {"message": "prompt is too long: 213462 tokens > 200000 maximum"}}
    metadata = {"raw": json.dumps(raw), "provider_name": "Anthropic"}
    outer = {"error": {"message": "Provider returned error", "code": 400, "metadata": metadata}}
    error = HERE.refusal_error(400, {}, json.dumps(outer).encode())
    assert isinstance(error, ContextTooLong)
    assert (error.tokens, error.window) == (213_462, 200_000)


def test_a_tool_call_that_the_server_cannot_parse_keeps_the_models_text() -> None:
    # https://console.groq.com/docs/tool-use#error-handling
    body = {
        "error": {
            "message": "Failed to call a function. See 'failed_generation' for more details.",
            "type": "invalid_request_error",
            "code": "tool_use_failed",
            "failed_generation": '<function=read_file>{"path":"a"}</function>',
        }
    }
    error = HERE.refusal_error(400, {}, json.dumps(body).encode())
    assert isinstance(error, ToolUseFailed)
    assert error.generation == '<function=read_file>{"path":"a"}</function>'


@pytest.mark.parametrize(
    "words",
    [
        # llama.cpp: sipeed/picoclaw#207, ggml-org/llama.cpp#20612, #17040, #20733, #16932
        "\n------------\nWhile executing CallExpression at line 47, column 32 in source:\n...== 0)"
        " %}{{- raise_exception('After the optional system message, con...\n  ^\nError: Jinja"
        " Exception: After the optional system message, conversation roles must alternate",
        "Failed to parse tool call arguments as JSON: [json.exception.parse_error.101] parse error",
        "Cannot pass both content and thinking in an assistant message with tool calls!",
        "Unable to generate parser for this template. System message must be at the beginning.",
        'Invalid tool call arguments passed: {"query":"x"} at row 76, column 80',
        "[json.exception.type_error.302] type must be string, but is array",
        "Failed to initialize samplers: failed to parse grammar",
        "JSON schema conversion failed: Unrecognized schema",
        "Unsupported param: tool_choice",
        "Conversation roles must alternate user/assistant/user/assistant/...",
        'TypeError: can only concatenate str (not "list") to str',
        # Ollama, Bedrock's gateway and LiteLLM, vLLM, SGLang: public reports
        'template: :3:15: executing "" at <.Messages>: can\'t evaluate field Foo',
        "An error occurred (ValidationException) when calling the ConverseStream operation: The"
        " toolConfig field must be defined when using toolUse and toolResult content blocks.",
        "messages.1.content.0: tool_use ids were found without tool_result blocks",
        "'NoneType' object has no attribute 'startswith'",
        "Internal server error: list index out of range",
        "this model is missing data required for image input",
    ],
)
def test_a_failure_that_blames_the_request_is_no_outage(words: str) -> None:
    body = json.dumps({"error": {"code": 500, "message": words, "type": "server_error"}})
    error = HERE.refusal_error(500, {}, body.encode())
    assert isinstance(error, RequestBlamed)
    assert error.status == 500
    assert error.detail
    assert "cannot handle the request (500)" in str(error)


@pytest.mark.parametrize(
    "words",
    [
        # QuantumNous/new-api: the gateway has no channel for the model
        "当前分组 default 下对于模型 x 无可用渠道 (request id: 1)",
        "No available channel for model x under group default (distributor)",
    ],
)
def test_a_model_that_a_gateway_does_not_have_is_no_outage(words: str) -> None:
    body = json.dumps({"error": {"message": words, "type": "new_api_error"}})
    error = HERE.refusal_error(503, {}, body.encode())
    assert type(error) is ProviderRejected
    assert words in str(error)
    assert "model.name" in error.hint


def test_the_reason_of_a_template_is_not_lost_behind_its_source() -> None:
    words = "x" * 400 + " Error: Jinja Exception: roles must alternate"
    error = HERE.refusal_error(500, {}, json.dumps({"error": {"message": words}}).encode())
    assert error.detail == "Jinja Exception: roles must alternate"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (500, "Internal Server Error"),
        (500, "The server had an error while processing your request. Sorry about that!"),
        (500, "upstream billing service timeout"),
        (500, "CUDA error: out of memory; failed to parse"),
        (502, "Bad gateway: the chat template service is gone"),
        (503, "Loading model"),
        (504, "Gateway timeout"),
        (529, "Overloaded"),
        (500, ""),
    ],
)
def test_a_real_outage_stays_one(status: int, words: str) -> None:
    error = HERE.refusal_error(status, {}, json.dumps({"error": {"message": words}}).encode())
    assert type(error) is ProviderUnavailable


@pytest.mark.parametrize("body", [b"[" * 60_000, b'{"error":' * 3000, b"\xff\xfe", b"", b"null"])
def test_no_body_breaks_the_reader(body: bytes) -> None:
    assert HERE.refusal_error(400, {}, body)
    assert ErrorBody.in_body(body) is not None


@pytest.mark.parametrize(
    "piece",
    [
        "1",
        "1,",
        "tokens ",
        "max_tokens ",
        "context length ",
        "limit 1 ",
        '{"a":',
        "[",
        "a: ' ",
        "<",
        "<head>",
        "<!--",
    ],
)
def test_a_long_body_takes_no_more_than_linear_time(piece: str) -> None:
    def decide(times: int) -> None:
        HERE.refusal_error(500, {}, (piece * times).encode())

    assert_linear(decide, 1_000)
