"""Tool calls that arrive as text are read, but quoted or explained markup is not a call."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.messages import ToolCall
from nanobot.providers.port import (
    Prompt,
    PromptMessage,
    Toolset,
    ToolSpec,
    assistant_message,
    system_message,
    tool_message,
    user_message,
)
from nanobot.providers.textcalls import TextCallFilter, TextCalls, explains, read_text_calls
from tests.growth import assert_linear

WRITE = ToolSpec(
    "write_file",
    "Write a file.",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "content": {"type": "string"},
            "lines": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "force": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        },
        "required": ["path"],
    },
)
EXEC = ToolSpec(
    "exec",
    "Run a command.",
    {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)
JOBS = ToolSpec("list_jobs", "List jobs.", {"type": "object", "properties": {}})
TOOLS = (WRITE, EXEC, JOBS)
ARGUMENTS = {"path": "a.txt", "content": 'Hi <b> "you"\n</tool> {x}', "lines": 2, "tags": ["p"]}
A = json.dumps(ARGUMENTS, ensure_ascii=False)


def prompt_of(*messages: PromptMessage) -> Prompt:
    """Return a prompt that ends with these messages, or a plain question."""
    last = messages or (user_message("Write a greeting to a.txt, please."),)
    return Prompt((system_message("You are an assistant."), *last), Toolset.of(TOOLS))


def read(text: str, *messages: PromptMessage, tools: Sequence[ToolSpec] = TOOLS) -> TextCalls:
    return read_text_calls(text, tools, prompt_of(*messages))


def stream(pieces: Iterable[str], *messages: PromptMessage) -> tuple[str, TextCalls]:
    """Return the shown text of a stream, and its calls."""
    reading = TextCallFilter(TOOLS, prompt_of(*messages))
    shown = "".join([reading.feed(piece) for piece in pieces])
    end = reading.close()
    return shown + end.text, TextCalls(shown + end.text, end.calls)


FORMS = {
    "hermes": f'<tool_call>\n{{"name": "write_file", "arguments": {A}}}\n</tool_call>',
    "hermes, never closed": f'<tool_call>{{"name": "write_file", "arguments": {A}}}',
    "hermes, encoded": f'<tool_call>{{"name": "write_file", "arguments": {json.dumps(A)}}}'
    "</tool_call>",
    "hermes, python": f"<tool_call>{ {'name': 'write_file', 'arguments': ARGUMENTS} }</tool_call>",
    "qwen2.5-coder": f'<tools>\n{{"name": "write_file", "arguments": {A}}}\n</tools>',
    "parameters": f'<tool_call>{{"name": "functions.write_file", "parameters": {A}}}</tool_call>',
    "function inside": '<tool_call>{"type": "function", "function": '
    f'{{"name": "write_file", "arguments": {A}}}}}</tool_call>',
    "llama": f"<function=write_file>{A}</function>",
    "llama with an end token": f"<function=write_file>{A}</function><|eom_id|>",
    "qwen3-coder": "<tool_call>\n<function=write_file>\n<parameter=path>\na.txt\n</parameter>\n"
    f"<parameter=content>\n{ARGUMENTS['content']}\n</parameter>\n<parameter=lines>\n2\n"
    '</parameter>\n<parameter=tags>\n["p"]\n</parameter>\n</function>\n</tool_call>',
    "mistral": f'[TOOL_CALLS][{{"name": "write_file", "arguments": {A}}}]</s>',
    "nemotron": f'<TOOLCALL>[{{"name": "write_file", "arguments": {A}}}]</TOOLCALL>',
    "hunyuan": f'<tool_calls>[{{"name": "write_file", "arguments": {A}}}]</tool_calls>',
    "phi": f'<|tool_call|>[{{"name": "write_file", "arguments": {A}}}]<|/tool_call|>',
    "llama 3.1": f'<|python_tag|>{{"name": "write_file", "parameters": {A}}}',
    "command a": '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "write_file", "parameters":'
    f" {A}}}]<|END_ACTION|>",
    "deepseek v3.2": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="write_file">\n'
    '<｜DSML｜parameter name="path" string="true">a.txt</｜DSML｜parameter>\n'
    f'<｜DSML｜parameter name="content" string="true">{ARGUMENTS["content"]}</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="lines" string="false">2</｜DSML｜parameter>\n<｜DSML｜parameter '
    'name="tags" string="false">["p"]</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
    "</｜DSML｜function_calls>",
    "mistral with a blank": f'[TOOL_CALLS] [{{"name": "write_file", "arguments": {A}}}]',
    "mistral by name": f"[TOOL_CALLS]write_file{A}",
    "mistral by name and id": f"[TOOL_CALLS]write_file[CALL_ID]abc123xyz[ARGS]{A}",
    "deepseek v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>write_file\n"
    f"```json\n{A}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
    "deepseek v3.1": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>write_file<｜tool▁sep｜>"
    f"{A}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.write_file:0"
    f"<|tool_call_argument_begin|>{A}<|tool_call_end|><|tool_calls_section_end|>",
    "glm": "<tool_call>write_file\n<arg_key>path</arg_key>\n<arg_value>a.txt</arg_value>\n"
    f"<arg_key>content</arg_key>\n<arg_value>{ARGUMENTS['content']}</arg_value>\n<arg_key>lines"
    '</arg_key>\n<arg_value>2</arg_value>\n<arg_key>tags</arg_key>\n<arg_value>["p"]</arg_value>\n'
    "</tool_call>",
    "minimax": '<minimax:tool_call>\n<invoke name="write_file">\n<parameter name="path">a.txt'
    f'</parameter>\n<parameter name="content">{ARGUMENTS["content"]}</parameter>\n'
    '<parameter name="lines">2</parameter>\n<parameter name="tags">["p"]</parameter>\n</invoke>\n'
    "</minimax:tool_call>",
    "invoke": '<invoke name="write_file">\n<parameter name="path">a.txt</parameter>\n'
    f'<parameter name="content">{ARGUMENTS["content"]}</parameter>\n<parameter name="lines">2'
    '</parameter>\n<parameter name="tags">["p"]</parameter>\n</invoke>',
    "gpt-oss": "<|channel|>commentary to=functions.write_file <|constrain|>json<|message|>"
    f"{A}<|call|>",
    "gpt-oss with a start": "<|start|>assistant<|channel|>commentary to=functions.write_file "
    f"<|constrain|>json<|message|>{A}<|call|>",
    "gpt-oss with the recipient first": "<|start|>assistant to=functions.write_file<|channel|>"
    f"commentary json<|message|>{A}",
}
BARE = {
    "bare": f'{{"name": "write_file", "arguments": {A}}}',
    "bare with parameters": f'{{"name": "write_file", "parameters": {A}}}',
    "fenced": f'```json\n{{"name": "write_file", "arguments": {A}}}\n```',
    "a list": f'[{{"name": "write_file", "arguments": {A}}}]',
    "a fenced list": f'```json\n[\n{{"name": "write_file", "arguments": {A}}}\n]\n```',
    "fenced with blanks": f'\n```\n{{\n"name": "write_file", "arguments": {A}}}\n```\n<|im_end|>',
}
ALL = FORMS | BARE


@pytest.mark.parametrize("form", ALL)
def test_each_form_is_read(form: str) -> None:
    found = read(ALL[form])
    assert found.text == ""
    (call,) = found.calls
    assert (call.name, json.loads(call.arguments), call.problem) == ("write_file", ARGUMENTS, "")


@pytest.mark.parametrize("form", FORMS)
def test_the_text_before_calls_is_the_text_of_the_reply(form: str) -> None:
    found = read(f"I will write it.\n\n{FORMS[form]}\n")
    assert (found.text, len(found.calls)) == ("I will write it.", 1)


@pytest.mark.parametrize("form", ALL)
def test_a_stream_shows_the_same_wherever_it_is_cut_and_no_piece_of_markup(form: str) -> None:
    text = ALL[form] if form in BARE else f"Sure: a < b.\n\n{ALL[form]}"
    whole = read(text)
    assert whole.calls
    for cut in range(len(text) + 1):
        assert stream([text[:cut], text[cut:]]) == (whole.text, whole)
    assert stream(text) == (whole.text, whole)
    assert stream(ALL[form]) == ("", read(ALL[form]))


@pytest.mark.parametrize("form", FORMS)
def test_several_calls_in_a_row_are_all_read(form: str) -> None:
    first = re.sub(r"</s>|<\|eom_id\|>|<｜end▁of▁sentence｜>", "", FORMS[form])
    second = FORMS[form].replace("a.txt", "b.txt")
    paths = [json.loads(call.arguments)["path"] for call in read(f"{first}\n{second}").calls]
    assert paths == ["a.txt", "b.txt"]


def test_calls_within_one_pair_of_tags_are_all_read() -> None:
    one, two = (f'{{"name": "exec", "arguments": {{"command": "{c}"}}}}' for c in ("ls", "id"))
    for text in (
        f"<tool_call>{one}\n{two}</tool_call>",
        f"<tools>[{one}, {two}]</tools>",
        f"[TOOL_CALLS][{one},{two}]",
        '<function_calls><invoke name="exec"><parameter name="command">ls</parameter></invoke>'
        '<invoke name="exec"><parameter name="command">id</parameter></invoke></function_calls>',
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.exec:0"
        '<|tool_call_argument_begin|>{"command":"ls"}<|tool_call_end|><|tool_call_begin|>'
        'functions.exec:1<|tool_call_argument_begin|>{"command":"id"}<|tool_call_end|>'
        "<|tool_calls_section_end|>",
    ):
        commands = [json.loads(call.arguments)["command"] for call in read(text).calls]
        assert commands == ["ls", "id"]


def test_a_tool_without_arguments_is_called() -> None:
    for text in (
        '<tool_call>{"name": "list_jobs"}</tool_call>',
        "<tool_call>list_jobs</tool_call>",
        "<function=list_jobs></function>",
        '{"name": "list_jobs", "arguments": {}}',
    ):
        assert [(one.name, one.arguments) for one in read(text).calls] == [("list_jobs", "{}")]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "exec", "arguments": {"command": "rm -rf',
        '<tool_call>{"name": "exec", "arguments": {"command": rm}}</tool_call>',
        "<function=exec>{command</function>",
        "<function=exec><parameter=command>rm -rf /tmp/x",
        '[TOOL_CALLS][{"name": "exec", "arguments": {"command": "rm"}',
        '<invoke name="exec"><parameter name="command">rm -rf',
        '<tool_call>{"name": "exec", "arguments": {"command": "ls"}}</tool_call>\n<tool_call>'
        '{"name": "exec", "arguments": {"command": "rm',
        '<tool_call>{"name": "exec", "arguments": {"command": "ls"}</tool_call>',
        "<tool_call>exec<arg_key>command</arg_key><arg_value>rm",
        '<|tool_call_begin|>functions.exec:0<|tool_call_argument_begin|>{"command": "rm',
        '<｜tool▁call▁begin｜>exec<｜tool▁sep｜>{"command": "rm',
        '<|channel|>commentary to=functions.exec<|message|>{"command": "rm',
    ],
)
def test_a_call_that_cannot_be_read_goes_back_and_never_runs(text: str) -> None:
    for found in (read(text), stream(text)[1]):
        (call,) = found.calls
        assert (found.text, call.name, call.arguments) == ("", "exec", "{}")
        assert call.problem
        assert call.markup == text


def test_unknown_arguments_and_numbers_in_quotes_are_left_to_the_tool() -> None:
    arguments = {"path": "a", "lines": "5", "force": "true", "mode": "w"}
    (call,) = read(f'<tools>{{"name":"write_file","arguments":{json.dumps(arguments)}}}').calls
    assert (json.loads(call.arguments), call.problem) == (arguments, "")


def test_an_unknown_tool_never_runs() -> None:
    markup = '<tool_call>{"name": "get_weather", "arguments": {"city": "Graz"}}</tool_call>'
    (call,) = read(markup).calls
    assert (call.name, call.problem) == ("get_weather", "no tool is named 'get_weather'")
    assert read(f"So:\n{markup}") == TextCalls(f"So:\n{markup}")
    bare = '{"name": "get_weather", "arguments": {"city": "Graz"}}'
    assert read(bare) == TextCalls(bare)


QUOTED = [
    "Here is one:\n\n```\n{}\n```",
    "Here is one:\n\n```xml\n{}\n```\nThat is all.",
    "~~~~\n{}\n~~~~",
    "It looks so: `{}`",
    "Inline: {}",
    "> {}",
    "- {}",
    "    {}",
    "As I said:\n  {}",
    "{}\n\nThat is how a call is written.",
    "{} <- such markup",
    "An example:\n{}",
    "Qwen writes it so:\n{}",
    "Das Format von Hermes:\n{}",
    "Beispiel:\n{}",
    "Un exemple :\n{}",
    "Por ejemplo:\n{}",
    "例如:\n{}",
    "Например, так:\n{}",
    "The tag <tool_call> begins it:\n{}",
    "First `[TOOL_CALLS]`, then:\n{}",
    "```\n{}\n```\nand also\n{}",
    "<think>\n{}\n</think>",
    "In a tool call, the model writes:\n\n{}",
    "So schreibt man einen Werkzeugaufruf:\n\n{}",
    "工具调用这样写:\n{}",
    "ツール呼び出しの書き方:\n{}",
    "Such a call would be:\n{}",
    "<pre>\n{}\n</pre>",
    "<code>\n{}",
    "You can invoke it like this:\n{}",
    "The raw output is:\n{}",
    "It is written as follows:\n{}",
    "In plain text, this is:\n{}",
    "To use write_file I write:\n{}",
    "Usage:\n{}",
    "The structure is:\n{}",
    "So sieht das aus:\n{}",
    "Das schreibt man so:\n{}",
    "Cela s'écrit ainsi :\n{}",
    "Se escribe así:\n{}",
    "Si scrive così:\n{}",
    "Escreve-se assim:\n{}",
    "Это пишется так:\n{}",
    "Наприклад:\n{}",
    "写法如下:\n{}",
    "比如:\n{}",
    "たとえば:\n{}",
    "次のように書きます:\n{}",
    "이렇게 씁니다:\n{}",
    "Zo schrijf je dat:\n{}",
    "Zapisuje się to tak:\n{}",
    "Şöyle yazılır:\n{}",
    "يكتب هكذا:\n{}",
    "ऐसे लिखते हैं:\n{}",
    "Till exempel:\n{}",
    "Például:\n{}",
]
MARKUPS = list(FORMS.values())


@pytest.mark.parametrize("way", QUOTED)
def test_quoted_or_explained_markup_is_text(way: str) -> None:
    for markup in MARKUPS:
        text = way.replace("{}", markup)
        assert read(text) == TextCalls(text)
    assert stream(text) == (text, TextCalls(text))


@pytest.mark.parametrize(
    "question",
    [
        "How do you call your tools? Show me one.",
        "Show me a tool call for write_file.",
        "What markup do you use for that?",
        "Wie rufst du deine Werkzeuge auf?",
        "Zeig mir einen Werkzeugaufruf.",
        "À quoi ressemble un appel d'outil ?",
        "¿Cómo usas tus herramientas?",
        "Как ты вызываешь инструменты?",
        "工具调用是什么样的？",
        "ツール呼び出しを見せて",
        "도구 호출은 어떻게 생겼어?",
    ],
)
def test_the_answer_to_a_question_about_calls_is_no_call(question: str) -> None:
    for form in ALL.values():
        for text in (form, f"With write_file:\n{form}"):
            assert read(text, user_message(question)) == TextCalls(text)


@pytest.mark.parametrize("form", ALL)
def test_a_question_about_calls_ends_with_an_order(form: str) -> None:
    asked = (user_message("How do you call your tools?"), assistant_message("I write a block."))
    assert not read(ALL[form], *asked, user_message("And for write_file?")).calls
    assert read(ALL[form], *asked, user_message("Now write it.")).calls
    assert read(ALL[form], user_message("Fix the function call in a.txt.")).calls


@pytest.mark.parametrize(
    "before",
    [
        "Let me check the disk usage:",
        "I'll look at the output first.",
        "Let me check the directory structure.",
        "I'll search for the pattern:",
        "It appears the file is missing; let me write it.",
        "I'll save it as plain text:",
        "I will use the write_file tool:",
        "Ich schreibe jetzt die Datei:",
        "Je vais écrire le fichier :",
        "Voy a escribir el archivo:",
        "Сейчас запишу.",
        "我将执行如下操作：",
        "確認します。",
    ],
)
def test_a_call_that_the_text_before_announces_is_read(before: str) -> None:
    assert [name for name, form in FORMS.items() if not read(f"{before}\n{form}").calls] == []


@pytest.mark.parametrize("form", ALL)
def test_markup_that_occurs_in_the_prompt_is_a_quotation(form: str) -> None:
    text = ALL[form]
    page = "A page says: " + text.replace(" ", "\n  ").replace("\n", "\n\t")
    escaped = json.dumps({"page": text.replace("<", "&lt;")})
    call = assistant_message("", (ToolCall("c1", "list_jobs", "{}"),))
    for shown in (
        (user_message(page),),
        (user_message("Read the page."), call, tool_message("c1", page)),
        (user_message("Read the page."), call, tool_message("c1", escaped)),
        (user_message(page), assistant_message("I see."), user_message("And now?")),
        (system_message(page), user_message("Go on.")),
    ):
        assert read(text, *shown) == TextCalls(text)
        assert stream(text, *shown) == (text, TextCalls(text))


@pytest.mark.parametrize("form", ALL)
def test_markup_of_the_kind_that_the_newest_turn_shows_is_a_quotation(form: str) -> None:
    text = ALL[form]
    other = text.replace("write_file", "exec").replace("path", "command").replace("a.txt", "id")
    call = assistant_message("", (ToolCall("c1", "list_jobs", "{}"),))
    assert read(text, user_message(f"What is {other}?")) == TextCalls(text)
    shown = (user_message("Read the page."), call, tool_message("c1", other))
    assert read(text, *shown) == TextCalls(text)
    answered = (user_message(other), assistant_message("A call."), user_message("Write it now."))
    assert read(text, *answered).calls


def test_a_call_that_was_made_before_can_be_made_again() -> None:
    text = FORMS["hermes"]
    before = assistant_message("", (ToolCall("c1", "write_file", A),))
    shown = (user_message("Write it."), before, tool_message("c1", "Written."))
    assert read(text, *shown).calls


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        '{"answer": 42}',
        '{"name": "Ada", "age": 36}',
        '{"name": "exec", "version": 1}',
        '```json\n{"name": "exec", "arguments": {"command": "ls"}}\n```\nThis would list files.',
        '{"name": "exec", "arguments": {"command": "ls"}}\n\nDone.',
        '```python\nprint("hi")\n```',
        '[{"name": "exec"}]',
        "<tool_call> is a tag",
        "a <tools",
        "<table><tr></table>",
        "<function=exec> is how it begins",
        "ends with a blank line\n\n",
    ],
)
def test_other_text_is_text(text: str) -> None:
    assert read(text) == TextCalls(text)
    assert stream(text) == (text, TextCalls(text))


PARTS = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "<tools>", "[TOOL_CALLS]", "<function=exec>", "\n", " "),
        *('{"name": "exec", "arguments": {"command": "ls"}}', '{"command": "ls"}', "exec", "text"),
        *("```", "```json\n", "<|channel|>", "commentary to=functions.exec", "<|message|>", "{"),
        *('<invoke name="exec">', "</invoke>", "</function>", "<think>", '"', "[", "]", "<"),
    ]
)


@given(st.lists(PARTS, max_size=10).map("".join), st.lists(st.integers(0, 200), max_size=6))
def test_a_stream_ends_as_the_whole_does(text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    whole = read(text)
    assert stream(pieces) == (whole.text, whole)
    assert stream(text) == (whole.text, whole)


@given(st.text(max_size=80))
def test_any_text_without_markup_comes_out_as_it_went_in(text: str) -> None:
    assert stream(text) == (text, TextCalls(text))


def test_text_is_shown_as_it_comes() -> None:
    reading = TextCallFilter(TOOLS, prompt_of())
    assert reading.feed("Hello ") == "Hello"
    assert reading.feed("you") == " you"
    assert reading.feed(".\n<to") == "."
    assert reading.feed("p> is no markup. ") == "\n<top> is no markup."
    assert reading.close() == TextCalls(" ")


def test_tags_of_a_tool_result_that_a_model_imitates_are_taken_off() -> None:
    prompt = Prompt((user_message("Well?"),), Toolset.of(TOOLS))
    text = "<tool_response>\nResults 1 to 1\n</tool_response>"
    assert read_text_calls(text, TOOLS, prompt) == TextCalls("Results 1 to 1")
    call = '{"name": "exec", "arguments": {"command": "ls"}}'
    (read,) = read_text_calls(f"<tool_response>{call}</tool_response>", TOOLS, prompt).calls
    assert (read.name, read.problem) == ("exec", "")
    doubled = f"{{{call}}}"
    assert [one.name for one in read_text_calls(doubled, TOOLS, prompt).calls] == ["exec"]
    assert read_text_calls("{{ name }}", TOOLS, prompt) == TextCalls("{{ name }}")
    shown = TextCallFilter(TOOLS, prompt)
    assert [shown.feed(letter) for letter in text] == [""] * len(text)
    assert shown.close() == TextCalls("Results 1 to 1")


@pytest.mark.parametrize("piece", ["`", " ", "\n", "<", "{'name':'list_jobs','arguments':{}}\n"])
@pytest.mark.parametrize("before", ["", "a\n", "<tool_call>", "<tool_response>"])
def test_a_model_that_repeats_itself_for_ever_takes_linear_time(piece: str, before: str) -> None:
    def stream(times: int) -> None:
        reading = TextCallFilter(TOOLS, prompt_of())
        for one in (before, *[piece] * times, "b"):
            reading.feed(one)
        reading.close()

    assert_linear(stream, 200)


@pytest.mark.parametrize("piece", ["\n", "\r\n", " ", "\n ", "1", "the ", "sieht "])
def test_a_long_text_before_a_call_takes_linear_time(piece: str) -> None:
    def search(length: int) -> None:
        text = f"1{piece * length}"[:length]
        assert not explains(text)

    assert_linear(search, 2_000)


@pytest.mark.parametrize(
    "asked_for",
    ["How full is the disk? Use the tool exec.", "Wie voll ist sie? Nimm das Tool exec."],
)
def test_an_order_behind_a_question_runs(asked_for: str) -> None:
    text = '<tool_call>{"name": "exec", "arguments": {"command": "df"}}</tool_call>'
    assert [call.name for call in read(text, user_message(asked_for)).calls] == ["exec"]
