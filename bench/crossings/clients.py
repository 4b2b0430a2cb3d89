"""Programs that add text to a person's words: requests of Chat Completions by client.

Shapes were read in the clients' public sources (file and commit). They are written in our own words
unless the exact words matter. Each function gets the typed text and the added text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Messages = list[dict[str, Any]]
Shape = Callable[[str, str], Messages]


def _user(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _system(content: object) -> dict[str, Any]:
    return {"role": "system", "content": content}


def _rag(added: str) -> str:
    """Open WebUI's template for documents and search results, shortened."""
    return (
        "### Task:\nRespond to the user query using the provided context, with inline citations.\n"
        f'<context>\n<source id="1" name="page.html">{added}</source>\n</context>\n'
    )


def open_webui(words: str, added: str) -> Messages:
    """Open WebUI puts documents and search results before the person's words, into their message:
    open-webui/open-webui 64dcb0b0, backend/open_webui/utils/middleware.py
    (`apply_source_context_to_messages`), utils/misc.py (`add_or_update_user_message`), config.py
    (`DEFAULT_RAG_TEMPLATE`)."""
    return [_user(f"{_rag(added)}\n{words}")]


def open_webui_system(words: str, added: str) -> Messages:
    """Return the same with RAG_SYSTEM_CONTEXT=true: documents are in the system message."""
    return [_system(_rag(added)), _user(words)]


def open_webui_tool(words: str, added: str) -> Messages:
    """Open WebUI appends the output of its tools to the person's message, if function calling is
    not native: backend/open_webui/utils/middleware.py (`chat_completion_tools_handler`)."""
    return [_user(f"{words}\n\nTool `search` Output: {added}")]


def open_webui_title(words: str, added: str) -> Messages:
    """Open WebUI's request for a title, with the chat in it: backend/open_webui/config.py
    (`DEFAULT_TITLE_GENERATION_PROMPT_TEMPLATE`), of the same commit."""
    chat = f"USER: {words}\nASSISTANT: {added}"
    return [_user(f"### Task:\nMake a title.\n<chat_history>\n{chat}\n</chat_history>")]


def librechat(words: str, added: str) -> Messages:
    """LibreChat adds the results of a file search to the instructions: danny-avila/LibreChat
    00b3bc32, api/app/clients/prompts/createContextHandlers.js."""
    found = f"<context><file><contextItem><![CDATA[{added}]]></contextItem></file></context>"
    return [_system(f"The user has attached a file to the conversation:\n{found}"), _user(words)]


def lobechat(words: str, added: str) -> Messages:
    """LobeChat appends files to the person's message: lobehub/lobe-chat 05b87ede,
    packages/prompts/src/prompts/files/index.ts."""
    files = f'<files_info>\n<files>\n<file name="a.txt">{added}</file>\n</files>\n</files_info>'
    context = f"<!-- SYSTEM CONTEXT (NOT PART OF USER QUERY) -->\n{files}\n<!-- END -->"
    return [_user([{"type": "text", "text": f"{words}\n\n{context}"}])]


def anything_llm(words: str, added: str) -> Messages:
    """AnythingLLM puts passages of documents into the system message: Mintplex-Labs/anything-llm
    01cf2fed, server/utils/AiProviders/genericOpenAi/index.js."""
    return [
        _system(f"Answer from the context.\nContext:\n[CONTEXT 0]:\n{added}\n[END CONTEXT 0]\n"),
        _user(words),
    ]


def anything_llm_user(words: str, added: str) -> Messages:
    """AnythingLLM's providers for other servers put them before the person's words: a fork's
    server/utils/AiProviders/deepseek/index.js (`userPromptWithContext`)."""
    return [_user(f"Context:\n[CONTEXT 0]:\n{added}\n[END CONTEXT 0]\n\n{words}")]


def continue_dev(words: str, added: str) -> Messages:
    """Continue sends files as text parts before the person's: continuedev/continue 1b8e7995,
    gui/src/redux/util/constructMessages.ts."""
    parts = [{"type": "text", "text": f"```a.py\n{added}\n```\n"}, {"type": "text", "text": words}]
    return [_system("You are in chat mode."), _user(parts)]


def home_assistant(words: str, added: str) -> Messages:
    """Home Assistant describes the house, names of devices included, in the system message:
    home-assistant/core, homeassistant/components/conversation/chat_log.py."""
    return [_system(f"You are a voice assistant.\nLiving room: {added}"), _user(words)]


def history(words: str, added: str) -> Messages:
    """Any client that keeps the chat itself and sends the earlier questions and answers."""
    return [
        _user(added),
        {"role": "assistant", "content": f"As you told me: {added}"},
        _user(words),
    ]


def tool_result(words: str, added: str) -> Messages:
    """Any client with its own tools, which sends a tool result before the person's words."""
    call = {"id": "1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    return [
        _user("search"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": added},
        {"role": "assistant", "content": f"I found: {added}"},
        _user(words),
    ]


def instructions_last(words: str, added: str) -> Messages:
    """Clients with instructions after the chat: SillyTavern/SillyTavern,
    public/scripts/openai.js (post-history instructions)."""
    return [_user(words), _system(added)]


SHAPES: Mapping[str, Shape] = {
    "Open WebUI": open_webui,
    "Open WebUI, system": open_webui_system,
    "Open WebUI, tool": open_webui_tool,
    "Open WebUI, title": open_webui_title,
    "LibreChat": librechat,
    "LobeChat": lobechat,
    "AnythingLLM": anything_llm,
    "AnythingLLM, user": anything_llm_user,
    "Continue": continue_dev,
    "Home Assistant": home_assistant,
    "a chat": history,
    "a tool's result": tool_result,
    "instructions last": instructions_last,
}
"""Shapes by client."""

IN_THE_USERS_MESSAGE = (
    "Open WebUI",
    "Open WebUI, tool",
    "Open WebUI, title",
    "LobeChat",
    "AnythingLLM, user",
    "Continue",
)
"""Clients that put added text into the person's message. For the others an own-words key is
right."""
