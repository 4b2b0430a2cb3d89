"""`OfflineModel`: a stand-in for a language model, so that nanobot works at once on any machine.

It is a small rule-based program that shows the pipeline: it remembers facts, answers from memory
and search, takes notes, sends files, and takes part in consolidation and Dream. It understands a
few dozen forms of sentences in English and Chinese, and admits when it understands nothing.

It is a function of the prompt: the same prompt gets the same reply, and nothing is kept between two
requests. An answer that needs tools is a *story*, a generator that yields a call and is sent its
result. Each request runs it from the beginning, with the results that the prompt records, until it
reaches a new call. Only offered tools are called, and only the person's messages are requests.
Results of tools and memory are material to quote."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Generator, Iterator, Mapping
from typing import NamedTuple

from nanobot.clock import Clock, SystemClock
from nanobot.messages import SILENT, TURN_FAILED, TURN_STOPPED, ToolCall
from nanobot.providers.offline import extracts
from nanobot.providers.offline.language import (
    ENOUGH,
    Request,
    best,
    insert_name,
    is_chinese,
    is_question,
    key_of,
    plain,
    requests_in,
    second_person,
    sentences,
    share,
    terms,
    third_person,
)
from nanobot.providers.port import (
    CallOptions,
    Prompt,
    PromptMessage,
    Reply,
    TextSink,
    Usage,
    estimate_tokens,
)

NAME = "offline"

_READ_AT_MOST = 16_000  # characters of a message that are read

_MARK = re.compile(r"\[[^\n]*\](?:\n|$)")
_BACKGROUND = re.compile(
    r"\[(?P<by>scheduled job|heartbeat) [^\n]*\]\n(?P<text>.*?)(?:\n\n\[.*)?\Z", re.DOTALL
)
_GROUP = re.compile(r"(?P<when>\d{4}-\d\d-\d\d \w{3}|no date) · (?P<where>\S+)$")
_HIT = re.compile(r"\[\d+\] (?:\d\d:\d\d )?(?P<who>[^·\n]+) · ")
_KINDS = {"summary", "note", "fact", "document"}

_TEXTS: Mapping[str, tuple[str, str]] = {
    "help": (
        "I am nanobot's built-in offline model: a small program, not a language model. I can:\n"
        "- remember what you tell me (“remember that I park on level 3”) and answer questions about"
        " it\n- remind you (“remind me in 20 minutes to look at the oven”)\n- take a note for today"
        " (“note: buy milk”)\n- send you a file (“send me a.txt”)\n\n"
        "To connect a real model, run `nanobot onboard` in a terminal, or open Settings in the "
        "browser (`nanobot web`).",
        "我是 nanobot 内置的离线模型，只是个小程序，不是大语言模型。我可以：\n"
        "- 记住你告诉我的事（“记住我喜欢绿茶”），并回答相关的问题\n"
        "- 提醒你（“20分钟后提醒我看烤箱”）\n- 记下今天的笔记（“记一下：买牛奶”）\n"
        "- 把文件发给你（“把 a.txt 发给我”）\n\n要连接真正的模型，请在终端运行 `nanobot onboard`，"
        "或在网页（`nanobot web`）打开 Settings。",
    ),
    "greeting": (
        "Hello! Tell me something to remember, ask me about it, or say “help”.",
        "你好！你可以让我记住一件事，问我记过的事，或者说“帮助”。",
    ),
    "thanks": ("You're welcome.", "不客气。"),
    "bye": ("Goodbye!", "再见！"),
    "forget": ("Send `/forget {0}`. I'll ask first.", "请发送 `/forget {0}`，我会先跟你确认。"),
    "memory": ("`/memory` shows everything that I remember.", "用 `/memory` 查看我记住的一切。"),
    "reminders": ("`/cron` lists and removes reminders.", "用 `/cron` 查看和删除提醒。"),
    "remind": ("I'll remind you.", "到时候我会提醒你。"),
    "when": (
        "When, and about what? Try “remind me in 20 minutes to look at the oven”.",
        "要在什么时候提醒你什么事？可以说“20分钟后提醒我看烤箱”。",
    ),
    "remembered": ("I'll remember that. {0}", "我记住了：{0}"),
    "updated": ("Updated. {0} (Before: {1})", "已更新：{0}（之前：{1}）"),
    "known": ("I know that already. {0}", "这个我已经知道了：{0}"),
    "nothing_said": ("What should I remember?", "要记住什么呢？请说“记住……”。"),
    "waits": ("Please confirm it in the message above.", "请先在上面的消息里确认。"),
    "unknown": ("I don't know that. My memory has nothing about it.", "这个我不知道，记忆里没有。"),
    "told": ("You told me on {1}: “{0}”", "你在 {1} 告诉过我：“{0}”"),
    "summary": ("From my summary of a conversation on {1}: {0}.", "我的 {1} 对话摘要里有：{0}。"),
    "elsewhere": ("I found this ({2}): {0}", "我找到了这个（{2}）：{0}"),
    "note": ("Noted: {0}", "记下了：{0}"),
    "reminder": ("Reminder: {0}", "提醒：{0}"),
    "send": ("Here is {0}.", "{0} 发给你了。"),
    "failed": ("That didn't work: {0}", "没有成功：{0}"),
    "heard": ("Okay. Say “remember that”, and I will.", "好的。想让我记住的话，说“记住”就行。"),
    "unclear": (
        "I didn't understand that. I'm a small program, not a language model. Try “help”.",
        "这句话我没听懂。我只是个小程序，不是大语言模型。可以说“帮助”试试。",
    ),
}  # fmt: skip


class _Call(NamedTuple):
    name: str
    arguments: Mapping[str, object]


class _Result(NamedTuple):
    """The result of a call. `failed` if the tool is not offered, refused or broke."""

    text: str
    failed: bool = False


_Story = Generator[_Call, _Result, str]


class OfflineModel:
    """Model that answers by rules. `clock` dates a consolidation whose messages have no time."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        """See `Provider`. Raise nothing."""
        step = self._choose_step(prompt, options)
        size = sum(len(message.wire) for message in prompt.messages) + len(prompt.tools.wire)
        if isinstance(step, str):
            if on_text is not None:
                for word in re.findall(r"\S+\s*|\s+", step):
                    on_text(word, False)
            await asyncio.sleep(0)  # other tasks may run, as with a real model
            return Reply(step, usage=Usage(size // 4, estimate_tokens(step)), model=NAME)
        arguments = json.dumps(step.arguments, ensure_ascii=False)
        seed = f"{len(prompt.messages)} {step.name} {arguments}".encode("utf-8", "replace")
        call = ToolCall(f"call_{hashlib.sha256(seed).hexdigest()[:16]}", step.name, arguments)
        usage = Usage(size // 4, len(arguments) // 4)
        return Reply("", (call,), usage, finish="tool_calls", model=NAME)

    async def close(self) -> None:
        """Do nothing, because nothing is open."""

    def _choose_step(self, prompt: Prompt, options: CallOptions) -> _Call | str:
        """Return the next call, or the text that ends the turn."""
        offered = frozenset(spec.name for spec in prompt.tools.specs)
        asked = next((m.text for m in reversed(prompt.messages) if m.role == "user"), "")
        if options.tool_choice == extracts.SAVE_MEMORY or offered == {extracts.SAVE_MEMORY}:
            return _Call(extracts.SAVE_MEMORY, extracts.consolidate(asked, self._clock.now()))
        system = next((m.text for m in prompt.messages[:1] if m.role == "system"), "")
        if phase := extracts.dream_phase(system):
            return extracts.dream(phase, asked)
        may_call = options.tool_choice != "none"
        return _Conversation(prompt.messages, offered if may_call else frozenset()).next_step()


class _Conversation:
    """A prompt: the requests of the running turn, their calls, and the messages before it."""

    def __init__(self, messages: tuple[PromptMessage, ...], tools: frozenset[str]) -> None:
        start = find_turn(messages)
        turn = messages[start:]
        self._tools = tools
        self._before = [unwrap(m.text) for m in messages[:start] if m.role == "user"]
        self._asked = [insert_name(unwrap(m.text), self._before) for m in turn if m.role == "user"]
        results = {m.tool_call_id: m.text for m in turn if m.role == "tool"}
        calls = (call for message in turn for call in message.tool_calls if call.id in results)
        self._made = [(call.name, call.arguments, results[call.id]) for call in calls]

    def next_step(self) -> _Call | str:
        """Return the first new call, or all replies together."""
        replies: list[str] = []
        for story in self._stories():
            try:
                call = next(story)
                while (result := self._find_result(call)) is not None:
                    call = story.send(result)
            except StopIteration as end:
                replies.append(str(end.value))
            else:
                return call
        return "\n".join(dict.fromkeys(filter(None, replies))) or _say("unclear", "")

    def _find_result(self, call: _Call) -> _Result | None:
        wanted = (call.name, json.dumps(call.arguments, ensure_ascii=False))
        for at, (*made, text) in enumerate(self._made):
            if tuple(made) == wanted:
                del self._made[at]
                return _Result(text, text.startswith(("Error", "interrupted:", "this call did")))
        missing = _Result(f"the tool {call.name} is not available here", failed=True)
        return None if call.name in self._tools else missing

    def _stories(self) -> Iterator[_Story]:
        for text in filter(None, self._asked):
            if background := _BACKGROUND.match(text):
                said = _say("reminder", text, background["text"].strip())
                yield _tell(SILENT if background["by"] == "heartbeat" else said)
                continue
            for request in requests_in(text[:_READ_AT_MOST]):
                yield self._story(request, text)

    def _story(self, request: Request, message: str) -> _Story:
        kind, text = request.kind, request.text
        if kind == "remember":
            # Only "remember that" refers to the statements of the previous message.
            before = sentences("\n".join(self._before[-1:]))
            recalled = [sentence for sentence in before if not is_question(sentence)]
            return self._remember(request.facts or tuple(recalled), message)
        due = {"action": "remind", "schedule": request.due, "message": text}
        calls = {
            "note": _Call("note", {"text": text}),
            "send": _Call("message", {"media": [text]}),
            "remind": _Call("cron", due),
        }
        if kind in calls:
            return self._make_call(calls[kind], _say(kind, message, text), message)
        return self._answer(text, message) if kind == "ask" else _tell(_say(kind, message, text))

    def _make_call(self, call: _Call, done: str, message: str) -> _Story:
        result = yield call
        return _tool_failed(result, message) if result.failed else done

    def _remember(self, statements: tuple[str, ...], message: str) -> _Story:
        if not statements:
            return _say("nothing_said", message)
        memory = yield _Call("read_file", {"path": extracts.MEMORY})
        text = "" if memory.failed else memory.text
        lines = extracts.fact_lines(text)
        replies: list[str] = []
        added: dict[str, list[str]] = {}
        changed: list[dict[str, str]] = []
        for fact in map(third_person, statements):
            if key_of(fact) in map(key_of, lines):
                replies.append(_say("known", message, second_person(fact)))
            elif old := extracts.rival_of(fact, lines):
                changed.append({"old": old, "new": fact})
                said = _say("updated", message, second_person(fact), second_person(plain(old)))
                replies.append(said)
            else:
                added.setdefault(extracts.heading_for(fact, text), []).append(fact)
        if added:
            new = " ".join(second_person(fact) for facts in added.values() for fact in facts)
            replies.insert(0, _say("remembered", message, new))
        steps: list[Mapping[str, object]] = [{"replace": changed}] if changed else []
        steps += [{"add": facts, "section": section} for section, facts in added.items()]
        for arguments in steps:
            result = yield _Call("update_memory", arguments)
            if result.failed:
                return _tool_failed(result, message)
            if "waits for the person" in result.text:
                return _say("waits", message)
        return " ".join(replies)

    def _answer(self, question: str, message: str) -> _Story:
        """Answer from the conversation and the memory file, else from a search."""
        memory = yield _Call("read_file", {"path": extracts.MEMORY})
        recalled = (s for text in self._before for s in sentences(text[:_READ_AT_MOST]))
        said = [third_person(sentence) for sentence in recalled if not is_question(sentence)]
        lines = [] if memory.failed else extracts.fact_lines(memory.text)
        if found := best(question, [*said, *lines]):
            return second_person(plain(found))
        searched = yield _Call("search_memory", {"query": question})
        quotes = () if searched.failed else find_quotes(searched.text, question, message)
        quote = max(quotes, key=lambda one: (one.by_person, one.score), default=None)
        return quote.said if quote else _say("unknown", message)


class _Quote(NamedTuple):
    """A quotation with its date, and how well it answers."""

    by_person: bool
    score: float
    said: str


def find_quotes(result: str, question: str, message: str) -> Iterator[_Quote]:
    """Yield quotations from a search that answer the question."""
    wanted = terms(question)
    group: re.Match[str] | None = None
    hit: re.Match[str] | None = None
    for line in result.splitlines():
        if not line.startswith(" "):
            group, hit = _GROUP.match(line) or group, _HIT.match(line)
        elif group and hit and line.startswith("  | "):
            who, where = hit["who"], group["where"]
            if who.startswith(("assistant", "tool")):
                continue
            kind = "told" if who == "user" else "summary" if where == "summary" else "elsewhere"
            place = who if where in _KINDS else where
            for sentence in sentences(line[4:]):
                score = share(wanted, sentence)
                if score >= ENOUGH and not is_question(sentence):
                    said = _say(kind, message, sentence, group["when"][:10], place)
                    yield _Quote(who == "user", score, said)


def _tool_failed(result: _Result, message: str) -> str:
    reason = re.sub(r"(?<![.!?:])\n+", ". ", result.text.removeprefix("Error: ").strip())
    return _say("failed", message, reason[:300])


def _say(key: str, message: str, *values: str) -> str:
    """Return a text in the language of `message`."""
    return _TEXTS[key][is_chinese(message)].format(*values)


def _tell(text: str) -> _Story:
    """Return `text`, as a story without tools."""
    yield from ()
    return text


def unwrap(text: str) -> str:
    """Return a person's message without nanobot's additions, or an empty text if it is nanobot's
    own."""
    while not _BACKGROUND.match(text) and (mark := _MARK.match(text)):
        if text.startswith(("[nanobot:", "[image from ")):
            return ""
        text = text[mark.end() :]
    return "\n".join(line for line in text.split("\n") if ", kept as media/" not in line)


def find_turn(messages: tuple[PromptMessage, ...]) -> int:
    """Return the position after the last text answer, or after the end of a turn without one."""
    for at in range(len(messages), 0, -1):
        message = messages[at - 1]
        ended = message.role == "user" and message.text in {TURN_STOPPED, TURN_FAILED}
        answered = message.role == "assistant" and not message.tool_calls
        if ended or answered or message.role == "system":
            return at
    return 0
