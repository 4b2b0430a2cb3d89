"""Refusals of a long prompt in the wordings of many servers, and texts that only look similar.

Each wording comes from a public report, a server's source code or its documentation, named next to
it. Identifiers of accounts were removed."""

from __future__ import annotations

import json

import pytest

from nanobot.errors import ContextTooLong, ProviderError
from nanobot.providers.endpoint import Endpoint
from nanobot.providers.refusals import ErrorBody

HERE = Endpoint("http://127.0.0.1:9/v1", "m-1")

TOO_LONG = [
    # (source, text, tokens counted by the server, its limit)
    (
        "OpenAI: mckaywrigley/chatbot-ui#102",
        "This model's maximum context length is 4097 tokens. However, you requested 4120 "
        "tokens (3120 in the messages, 1000 in the completion). Please reduce the length "
        "of the messages or completion.",
        3120,
        4097,
    ),
    (
        "OpenAI: crewAIInc/crewAI-examples#121",
        "This model's maximum context length is 8192 tokens. However, your messages "
        "resulted in 8227 tokens. Please reduce the length of the messages.",
        8227,
        8192,
    ),
    (
        "OpenAI: stanford-crfm/helm#94",
        "This model's maximum context length is 2049 tokens, however you requested 2054 "
        "tokens (2049 in your prompt, 5 for the completion). Please reduce your prompt or"
        " completion length.",
        2049,
        2049,
    ),
    (
        "vLLM: THUDM/LongBench#104",
        "This model's maximum context length is 131072 tokens. However, you requested "
        "351430 tokens. Please reduce the length of the messages or completion.",
        351430,
        131072,
    ),
    (
        "OpenAI, Responses: earendil-works/pi, overflow.ts",
        "Your input exceeds the context window of this model. Please adjust your input "
        "and try again.",
        0,
        0,
    ),
    (
        "vLLM: xorbitsai/inference#3785, EvolvingLMMs-Lab/lmms-eval#711",
        "The decoder prompt (length 41000) is longer than the maximum model length of "
        "32768. Make sure that `max_model_len` is no smaller than the number of text "
        "tokens plus multimodal tokens. For image inputs, the number of image tokens "
        "depends on the number of images, and possibly their aspect ratios as well.",
        41000,
        32768,
    ),
    (
        "vLLM: hiyouga/LlamaFactory#7723",
        "Prompt length of 5016 is longer than the maximum model length of 4096.",
        5016,
        4096,
    ),
    (
        "vLLM: vllm/entrypoints/openai/serving_engine.py",
        "This model's maximum context length is 8192 tokens and your request has 9001 input tokens",
        9001,
        8192,
    ),
    (
        "the same with a long answer that would fit: vllm/entrypoints/openai/serving_engine.py",
        "'max_tokens' or 'max_completion_tokens' is too large: 1000. This model's maximum"
        " context length is 8192 tokens and your request has 7900 input tokens (1000 > "
        "8192 - 7900).",
        7900,
        8192,
    ),
    (
        "llama.cpp: ggml-org/llama.cpp#15780",
        "the request exceeds the available context size. try increasing the context size "
        "or enable context shift",
        0,
        0,
    ),
    (
        "llama.cpp: ggml-org/llama.cpp#19774",
        "request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it",
        4390,
        4096,
    ),
    (
        "llama.cpp: ggml-org/llama.cpp#19774",
        "Context size has been exceeded.",
        0,
        0,
    ),
    (
        "llama-cpp-python: fedora-copr/logdetective-website#193",
        "Requested tokens (2285) exceed context window of 2048",
        2285,
        2048,
    ),
    (
        "llama.cpp: tools/server/server.cpp",
        "input is too large to process. increase the physical batch size",
        0,
        0,
    ),
    (
        "LM Studio: lmstudio-ai/lmstudio-bug-tracker#546",
        "Trying to keep the first 111490 tokens when context the overflows. However, the "
        "model is loaded with context length of only 32768 tokens, which is not enough. "
        "Try to load the model with a larger context length, or provide a shorter input",
        111490,
        32768,
    ),
    (
        "LM Studio: Gitlawb/openclaude#353",
        "The number of tokens to keep from the initial prompt is greater than the context"
        " length (n_keep: 13055>= n_ctx: 4096). Try to load the model with a larger "
        "context length, or provide a shorter input.",
        13055,
        4096,
    ),
    (
        "LM Studio: anomalyco/opencode#2259",
        "The number of tokens to keep from the initial prompt is greater than the context"
        " length. Try to load the model with a larger context length, or provide a "
        "shorter input",
        0,
        0,
    ),
    (
        "Groq, 413: continuedev/continue#10218",
        "Request too large for model `llama-3.3-70b-versatile` in organization `org_x` "
        "service tier `on_demand` on tokens per minute (TPM): Limit 12000, Requested "
        "14137, please reduce your message size and try again. Need more tokens? Upgrade "
        "to Dev Tier today at https://console.groq.com/settings/billing",
        14137,
        12000,
    ),
    (
        "OpenAI, 429: vanna-ai/vanna-flask#11",
        "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested "
        "342389. The input or output tokens must be reduced in order to run successfully.",
        342389,
        30000,
    ),
    (
        "Groq: FoundationAgents/MetaGPT#90",
        "Please reduce the length of the messages or completion.",
        0,
        0,
    ),
    (
        "Cerebras: cline/cline#5140",
        "Please reduce the length of the messages or completion. Current length is 42328 "
        "while limit is 40000",
        42328,
        40000,
    ),
    (
        "Moonshot: MoonshotAI/MoonshotAI-Cookbook#18",
        "model max length exceeded, max length:8192",
        0,
        8192,
    ),
    (
        "Moonshot: MoonshotAI/kimi-cli#2011",
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)",
        269030,
        262144,
    ),
    (
        "Moonshot, without the count: the design page of nanobot",
        "Your request exceeded model token limit: 262144",
        0,
        262144,
    ),
    (
        "GLM: zeroclaw-labs/zeroclaw#4124",
        "Prompt exceeds max length",
        0,
        0,
    ),
    (
        "GLM: foreveryh/claude-code-switch#12",
        "API 调用参数有误，请检查文档。Request 182387 input tokens exceeds the model's maximum"
        " context length 202750",
        182387,
        202750,
    ),
    (
        "MiniMax: MiniMax-AI/MiniMax-M2#119 (2013 is a code, NousResearch/hermes-agent#14743)",
        "invalid params, context window exceeds limit (2013)",
        0,
        0,
    ),
    (
        "SGLang: QwenLM/Qwen3#1321",
        "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
        61709,
        40960,
    ),
    (
        "SGLang: sgl-project/sglang#4048",
        "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).",
        160062,
        59862,
    ),
    (
        "SGLang: public reports of 2026",
        "Requested token count exceeds the model's maximum context length of 131072 "
        "tokens. You requested a total of 140000 tokens: 130000 tokens from the input "
        "messages and 10000 tokens for the completion.",
        130000,
        131072,
    ),
    (
        "Gemini: google-gemini/gemini-cli#4692",
        "The input token count (2845475) exceeds the maximum number of tokens allowed (1048576).",
        2845475,
        1048576,
    ),
    (
        "xAI: cline/cline#3120",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        537812,
        131072,
    ),
    (
        "Anthropic: earendil-works/pi#102",
        "prompt is too long: 213462 tokens > 200000 maximum",
        213462,
        200000,
    ),
    (
        "Anthropic: claude-code, withRetry.ts",
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, "
        "decrease input length or `max_tokens` and try again",
        188240,
        200000,
    ),
    (
        "Bedrock: aws-samples/bedrock-chat#95",
        "Input is too long for requested model.",
        0,
        0,
    ),
    (
        "GitHub Models, Azure: dyad-sh/dyad#1950, cline/cline#995",
        "Request body too large for gpt-5-mini model. Max size: 4000 tokens.",
        0,
        4000,
    ),
    (
        "GitHub Copilot: microsoft/copilot-intellij-feedback#94",
        "prompt token count of 138898 exceeds the limit of 64000",
        138898,
        64000,
    ),
    (
        "OpenRouter: refly-ai/refly#1177",
        "This endpoint's maximum context length is 32768 tokens. However, you requested "
        "about 42832 tokens (42832 of text input). Please reduce the length of either "
        'one, or use the "middle-out" transform to compress your prompt automatically.',
        42832,
        32768,
    ),
    (
        "Mistral: earendil-works/pi, overflow.ts",
        "Prompt contains 35000 tokens and 0 draft tokens, too large for model with 32768 "
        "maximum context length",
        35000,
        32768,
    ),
    (
        "Cohere: cohere-ai/sandbox-topically#4",
        "too many tokens: total number of tokens (prompt and prediction) cannot exceed "
        "2048 - received 6354. Try using a shorter prompt or a smaller max_tokens value.",
        6354,
        2048,
    ),
    (
        "TGI: huggingface/text-generation-inference#695",
        "Input validation error: `inputs` must have less than 1024 tokens. Given: 1168",
        1168,
        1024,
    ),
    (
        "TGI: huggingface/text-generation-inference#628",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. "
        "Given: 1244 `inputs` tokens and 1000 `max_new_tokens`",
        1244,
        2048,
    ),
    (
        "DashScope: QwenLM/qwen-code#3652",
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 983616]",
        0,
        983616,
    ),
    (
        "TabbyAPI: SillyTavern/SillyTavern#3543",
        "Request length 71599 + 2048 is greater than max_seq_len 65536",
        71599,
        65536,
    ),
    (
        "TensorRT-LLM: triton-inference-server/tensorrtllm_backend#141",
        "Prompt length (5056) exceeds maximum sequence length (2048)",
        5056,
        2048,
    ),
    (
        "mlx-serve: ddalcu/mlx-serve#66",
        "Prompt exceeds maximum context length",
        0,
        0,
    ),
    (
        "Ollama: earendil-works/pi, overflow.ts",
        "prompt too long; exceeded max context length by 120 tokens",
        0,
        0,
    ),
    (
        "DS4: earendil-works/pi, overflow.ts",
        "Prompt has 32769 tokens, but the configured context size is 32768 tokens",
        32769,
        32768,
    ),
    (
        "Volcengine: sipeed/picoclaw, its tests",
        "Total tokens of image and text exceed max message tokens. Request id: 0217",
        0,
        0,
    ),
    (
        "OpenAI: https://platform.openai.com/docs/guides/error-codes",
        "Invalid 'messages[1].content': string too long. Expected a string with maximum "
        "length 1048576, but got a string with length 1190182 instead.",
        0,
        0,
    ),
    (
        "OpenAI, GPT-5: letta-ai/letta, error_utils.py",
        "Input tokens exceed the configured limit of 272000 tokens. Your messages "
        "resulted in 301234 tokens. Please reduce the length of the messages.",
        301234,
        272000,
    ),
    (
        "Chinese gateways, in short",
        "输入长度超过模型上限",
        0,
        0,
    ),
    (
        "GLM's documentation, error 1261",
        "Prompt 超长",
        0,
        0,
    ),
    (
        "Ollama's cloud: openclaw/openclaw, its tests",
        "The prompt is too long: 300000, model maximum context length: 262143",
        300000,
        262143,
    ),
    (
        "anomalyco/opencode, packages/llm/src/provider-error.ts",
        "tokens in request more than max tokens allowed",
        0,
        0,
    ),
    (
        "the design page of nanobot",
        "128000 tokens is the maximum context length of this model; you requested 130000 "
        "tokens (120000 in the messages, 10000 in the completion)",
        120000,
        128000,
    ),
    (
        "vLLM of 2026: vllm/renderers/params.py",
        "This model's maximum context length is 32768 tokens. However, you requested 8192 output"
        " tokens and your prompt contains at least 24577 input tokens, for a total of at least"
        " 32769 tokens. Please reduce the length of the input prompt.",
        24577,
        32768,
    ),
    (
        "OpenRouter, some models",
        "Your prompt is longer than the model's context length of 2048.",
        0,
        2048,
    ),
    ("Bedrock, by a proxy", "The request payload size has exceed context limit.", 0, 0),
    (
        "OpenRouter, Poolside: earendil-works/pi, overflow.ts",
        "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
        131393,
        131040,
    ),
    (
        "SiliconFlow: leookun/cursor-byok#129",
        "number of input tokens (204703) has exceeded max_prompt_tokens (202752) limit.",
        204703,
        202752,
    ),
    (
        "vLLM: proxysoul/Empryo#52",
        "You passed 202753 input tokens and requested 0 output tokens. However,"
        " the model's context length is only 202752 tokens, resulting in a "
        "maximum input length of 202752 tokens.",
        202753,
        202752,
    ),
    (
        "vLLM: vllm-project/vllm#12165",
        "The prompt (total length 25938) is too long to fit into the model (context length 4096).",
        25938,
        4096,
    ),
    (
        "Cloudflare's Workers AI, code 5021",
        "AiError: The estimated number of input and maximum output tokens "
        "(31216) exceeded this model context window limit (24000).",
        31216,
        24000,
    ),
    (
        "YandexGPT: community-of-python/any-llm-client, its tests",
        "number of input tokens must be no more than 7400, got 8042",
        8042,
        7400,
    ),
    (
        "watsonx.ai",
        "the number of input tokens 5000 cannot exceed the total tokens limit 4096 for this model",
        5000,
        4096,
    ),
    (
        "text-generation-webui: extensions/openai/completions.py",
        "This model maximum context length is 2048 tokens. However, your "
        "messages resulted in over 2300 tokens and max_tokens is 512.",
        2300,
        2048,
    ),
    (
        "mlc-llm: serve/engine_base.py",
        "Request prompt has 5000 tokens in total, larger than the model input length limit 4096.",
        5000,
        4096,
    ),
    (
        "mistral.rs: mistralrs-core, its engine",
        "Prompt sequence length is greater than 4096, perhaps consider using `truncate_sequence`?",
        0,
        4096,
    ),
    (
        "lmdeploy: ResponseType",
        "internal error happened, status code ResponseType.INPUT_LENGTH_ERROR",
        0,
        0,
    ),
    (
        "Vertex AI: public reports of 2025",
        "Unable to submit request because the input token count is 1100000 but "
        "model only supports up to 1048576. Reduce the input token count and "
        "try again. You can also use the CountTokens API to calculate prompt "
        "token count and billable characters.",
        1100000,
        1048576,
    ),
    (
        "LiteLLM around another's error",
        "litellm.ContextWindowExceededError: OpenAIException - Error code: 400 "
        "- {'error': {'message': \"This model's maximum context length is 8192 "
        'tokens. However, your messages resulted in 8545 tokens."}}',
        8545,
        8192,
    ),
    (
        "Bedrock: Titan",
        "Too many input tokens. Max input tokens: 8192, request input token count: 9000",
        9000,
        8192,
    ),
    (
        "Spark, code 10907: https://www.xfyun.cn/doc/spark/接口说明.html",
        "token数量超过上限。对话历史+问题的字数太多，需要精简输入",
        0,
        0,
    ),
    (
        "Chinese gateways: openclaw/openclaw, its tests",
        "请压缩上下文后重试",
        0,
        0,
    ),
    (
        "Chinese gateways: openclaw/openclaw, its tests",
        "上下文长度超出模型最大限制",
        0,
        0,
    ),
    (
        "Chinese, with the numbers",
        "输入的token数量(45021)超过了模型支持的最大长度(32768)",
        45021,
        32768,
    ),
    (
        "Chinese, with the maximum",
        "您的输入超长，最多支持 8192 个 token",
        0,
        8192,
    ),
    (
        "Chinese, traditional",
        "輸入長度超過模型的最大上下文長度",
        0,
        0,
    ),
    (
        "Japanese",
        "入力が長すぎます。",
        0,
        0,
    ),
    (
        "Japanese, with the maximum",
        "プロンプトがモデルの最大コンテキスト長(8192トークン)を超えています。",
        0,
        8192,
    ),
    (
        "Japanese, with the numbers",
        "トークン数が上限を超えました（最大 4096、現在 5120）",
        5120,
        4096,
    ),
    (
        "Korean",
        "컨텍스트 길이를 초과했습니다",
        0,
        0,
    ),
    (
        "LM Studio, newest",
        "Cannot truncate prompt with n_keep (14483) >= n_ctx (12000).",
        14483,
        12000,
    ),
    (
        "YandexGPT: community-of-python/any-llm-client, its tests",
        "text length is 349354, which is outside the range (0, 100000]",
        0,
        0,
    ),
    (
        "watsonx.ai: public reports of 2026",
        "token_quantity_exceeded: input token count is above the limit",
        0,
        0,
    ),
]

SOMETHING_ELSE = [
    (
        "SGLang, an answer that fills the window",
        "Requested token count exceeds the model's maximum context length of 16384 tokens. You"
        " requested a total of 17964 tokens: 1580 tokens from the input messages and 16384 tokens"
        " for the completion.",
    ),
    (
        "OpenAI, an answer that fills the window: Ice-Hazymoon/openai-scf-proxy#25",
        "This model's maximum context length is 4096 tokens. However, you requested 4112 tokens"
        " (112 in the messages, 4000 in the completion).",
    ),
    (
        "OpenAI: tailcallhq/forgecode#1185",
        "max_tokens is too large: 99999. This model supports at most 16384 completion "
        "tokens, whereas you provided 99999.",
    ),
    (
        "OpenAI, in short",
        "max_tokens is too large: 100000.",
    ),
    (
        "vLLM: serving_engine.py, an answer that fills the window",
        "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum"
        " context length is 8192 tokens and your request has 25 input tokens (8192 > 8192"
        " - 25).",
    ),
    (
        "Groq: khoj-ai/khoj#1236",
        "`max_completion_tokens` must be less than or equal to `8192`, the maximum value "
        "for `max_completion_tokens` is less than the `context_window` for this model",
    ),
    (
        "DeepSeek: CherryHQ/cherry-studio#4377",
        "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
    ),
    (
        "DashScope's list of error codes",
        "Range of max_tokens should be [1, 8192]",
    ),
    (
        "Bedrock: aws-samples/bedrock-access-gateway#41",
        "The maximum tokens you requested exceeds the model limit of 2048. Try again with"
        " a maximum tokens value that is lower than 2048.",
    ),
    (
        "Volcengine: Gitlawb/openclaude#331",
        "The parameter `max_completion_tokens` specified in the request are not valid: "
        "integer above maximum value, expected a value <= 12288, but got 32000 instead.",
    ),
    (
        "TGI: huggingface/transformers#28523",
        "Input validation error: `max_new_tokens` must be <= 192",
    ),
    (
        "OpenAI: openai/codex, its tests",
        "Rate limit reached for gpt-5.1 in organization org-AAA on tokens per min (TPM): "
        "Limit 30000, Used 22999, Requested 12528. Please try again in 11.054s.",
    ),
    (
        "Groq: elizaOS/eliza#4040",
        "Rate limit reached for model `llama-3.1-8b-instant` on tokens per minute (TPM): "
        "Limit 6000, Used 5034, Requested 1443. Please try again in 4.77s. Need more "
        "tokens? Upgrade",
    ),
    (
        "Bedrock: ThrottlingException",
        "Throttling error: Too many tokens, please wait before trying again.",
    ),
    (
        "an aggregator",
        "Rate limit exceeded: too many tokens per minute",
    ),
    (
        "any",
        "Too many requests, please slow down",
    ),
    (
        "OpenAI: insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    (
        "OpenRouter, 402",
        "This request requires more credits, or fewer max_tokens. You requested up to "
        "65536 tokens, but can only afford 3000.",
    ),
    (
        "an aggregator",
        "credit insufficient balance: balance=0 required=4560",
    ),
    (
        "Anthropic: anthropics/claude-code#10612",
        "messages.0.content.2.image.source.base64: image exceeds 5 MB maximum: 15908784 "
        "bytes > 5242880 bytes",
    ),
    (
        "Anthropic: anthropics/claude-code#24630",
        "messages.19.content.27.image.source.base64.data: At least one of the image "
        "dimensions exceed max allowed size for many-image requests: 2000 pixels",
    ),
    (
        "Crucible: diegosouzapw/OmniRoute#3044",
        "Model 'moonshotai/kimi-k2.6' supports at most 1 image per prompt.",
    ),
    (
        "OpenAI: a call id that is too long",
        "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with "
        "maximum length 40, but got a string with length 57 instead.",
    ),
    (
        "OpenAI: too many tools",
        "Invalid 'tools': array too long. Expected an array with maximum length 128, but "
        "got an array with length 166 instead.",
    ),
    (
        "OpenAI: a description that is too long",
        "Invalid 'tools[0].function.description': string too long. Expected a string with"
        " maximum length 1024, but got a string with length 2000 instead.",
    ),
    (
        "OpenAI: devnullvoid/dms-ai-assistant#12",
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
        "'max_completion_tokens' instead.",
    ),
    (
        "Go: a timeout",
        "context deadline exceeded",
    ),
    (
        "Go: a timeout of a proxy",
        'Post "http://upstream/v1": context deadline exceeded (Client.Timeout exceeded '
        "while awaiting headers)",
    ),
    (
        "any",
        "The request took too long to process",
    ),
    (
        "Pydantic",
        "max_tokens: Input should be less than or equal to 8192",
    ),
    (
        "Anthropic: thinking",
        "thinking.budget_tokens: Input should be greater than or equal to 1024",
    ),
    (
        "Anthropic: thinking",
        "`max_tokens` must be greater than `thinking.budget_tokens`.",
    ),
    (
        "a range",
        "temperature: range: -1..1; messages with temperature greater than 1 are refused",
    ),
    (
        "Anthropic: caching",
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    (
        "HTTP 431",
        "Request Header Fields Too Large",
    ),
    (
        "a tool's argument",
        "Tool argument validation failed: input length exceeds 1000 characters",
    ),
    (
        "OpenAI",
        "Unrecognized request argument supplied: context",
    ),
    (
        "OpenAI",
        "Unknown parameter: 'prompt_cache_key'.",
    ),
    (
        "llama.cpp: sipeed/picoclaw#207",
        "After the optional system message, conversation roles must alternate user and "
        "assistant roles except for tool calls and results.",
    ),
    (
        "OpenAI",
        "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
    ),
    (
        "Gemini: caching",
        "Cached content is too small. total_token_count=1024, min_total_token_count=32768",
    ),
    (
        "OpenAI",
        "Invalid value for 'content'.",
    ),
    (
        "a picture",
        "bad image",
    ),
    (
        "an outage",
        "The server is overloaded. Please reduce the number of requests.",
    ),
    (
        "a limit for a day",
        "This model is limited to 50 requests per day. Your limit is reached.",
    ),
    (
        "a name",
        "Function name is longer than 64 characters",
    ),
    (
        "an answer",
        "Maximum output tokens reached",
    ),
    (
        "a GPU",
        "CUDA out of memory. Tried to allocate 2.00 GiB",
    ),
    (
        "a limit of connections",
        "The maximum number of concurrent requests is 4",
    ),
    (
        "llama.cpp: ggml-org/llama.cpp#20612",
        "Failed to parse tool call arguments as JSON: [json.exception.parse_error.101] "
        "parse error at line 1, column 59650: syntax error while parsing value - invalid "
        "string: missing closing quote",
    ),
    ("a lack of memory", "llama_decode failed: out of memory"),
    ("a GPU", "The model requires more system memory (9.5 GiB) than is available (7.4 GiB)"),
    ("a name", "'messages[0].name' is too long: at most 64 characters"),
    ("a schema", "Invalid schema: the schema exceeds the maximum nesting depth of 5"),
    ("a schema", "Schema has too many states for serving; reduce the length of enums"),
    ("a file", "The file is too large: audio files may have at most 25 MB"),
    (
        "a Chinese limit of messages",
        "每分钟消息数超过上限，请稍后再试",
    ),
    (
        "a Chinese limit of conversations",
        "您今日的对话次数已超过上限",
    ),
    (
        "a Chinese timeout",
        "对话请求超时",
    ),
    (
        "a Chinese limit of pictures",
        "输入图片超过 10MB 限制",
    ),
    (
        "a Chinese account",
        "提示：余额不足，已超出信用额度",
    ),
    (
        "a Chinese max_tokens",
        "输入的 max_tokens 超过最大值 8192",
    ),
    (
        "a Japanese limit of requests",
        "リクエスト数が上限を超えました。しばらくしてから再試行してください。",
    ),
    (
        "Moonshot: https://platform.moonshot.cn/docs, its errors",
        "Your account org-x request reached organization max concurrency: 3, "
        "please try again after 1 seconds",
    ),
    (
        "a gateway's timeout",
        "Request exceeded the maximum time limit of 60 seconds",
    ),
    (
        "a gateway's timeout",
        "Request processing exceeded 600 seconds",
    ),
    (
        "a limit of requests",
        "You have exceeded your request limit.",
    ),
    (
        "a limit of messages",
        "Free tier message limit reached",
    ),
    (
        "a limit by month",
        "Monthly token limit exceeded for your plan",
    ),
    (
        "a filter",
        "The prompt was blocked because it exceeds the safety threshold",
    ),
    ("a parameter", "temperature in the request is out of range [0, 2]"),
]


def refusal(status: int, message: str) -> ProviderError:
    body = json.dumps({"error": {"message": message}})
    return HERE.refusal_error(status, {}, body.encode())


@pytest.mark.parametrize(("source", "words", "tokens", "window"), TOO_LONG)
def test_a_prompt_that_is_too_long_is_recognised_with_the_servers_numbers(
    source: str, words: str, tokens: int, window: int
) -> None:
    for status in (400, 413, 422, 429, 500, 502, 503):
        error = refusal(status, words)
        assert type(error) is ContextTooLong, source
        assert (error.tokens, error.window) == (tokens, window), source
    inside = HERE.body_error(ErrorBody.of({"message": words}))
    assert type(inside) is ContextTooLong, source


@pytest.mark.parametrize(("source", "words"), SOMETHING_ELSE)
def test_other_refusals_are_not_taken_for_a_long_prompt(source: str, words: str) -> None:
    for status in (400, 422, 429, 500, 503):
        assert not isinstance(refusal(status, words), ContextTooLong), source
    assert not isinstance(HERE.body_error(ErrorBody.of({"message": words})), ContextTooLong), source


def test_a_refused_key_is_not_a_long_prompt_whatever_its_words_are() -> None:
    for status in (401, 402, 403, 404):
        assert not isinstance(refusal(status, "the prompt is too long"), ContextTooLong)


def test_numbers_in_fields_of_their_own_count() -> None:
    body = (
        b'{"error":{"code":400,"message":"the request exceeds the available context size",'
        b'"type":"exceed_context_size_error","n_prompt_tokens":1407,"n_ctx":256}}'
    )
    error = HERE.refusal_error(400, {}, body)
    assert isinstance(error, ContextTooLong)
    assert (error.tokens, error.window) == (1407, 256)
    assert "1,407 tokens, but the server accepts 256" in str(error)


def test_an_answer_that_is_too_long_names_the_setting() -> None:
    words = "max_tokens is too large: 99999. This model supports at most 16384 completion tokens"
    error = refusal(400, words)
    assert "model.max_completion_tokens" in error.hint
    assert words in str(error)


def test_a_code_is_enough() -> None:
    said = ErrorBody.of({"message": "Bad request", "code": "context_length_exceeded"})
    assert said.overflow
