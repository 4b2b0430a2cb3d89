"""The forms in which a text is found, and the text that stays in place."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.errors import NanobotError
from nanobot.memory.matcher import ERASED, TextMatcher

TEXT = "Zoë Müller-Straße 4711"


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        TEXT.lower(),
        TEXT.upper(),
        unicodedata.normalize("NFD", TEXT),
        "Zoë\n   Müller-Straße\t4711",
        "Zoë\u00a0Müller-Straße\u20284711",
        json.dumps(TEXT),
        json.dumps(json.dumps(json.dumps(TEXT))),
        json.dumps(TEXT.replace(" ", "\n")),
        "Zo\\u00EB M\\u00FCller-Stra\\u00DFe 4711",
        "\n+Zoë\n+Müller-Straße 4711",
        r"Zoë\x0a\x85Müller-Straße\u2028\xa04711",
        r"Zoë Müller\u002dStraße 4711",
    ],
)
def test_a_text_is_found_in_every_form(text: str) -> None:
    matcher = TextMatcher(TEXT)
    assert matcher.is_in(f"before {text} after")
    assert not matcher.is_in(matcher.redact(f"before {text} after"))


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("Πάτρας Οδυσσεύς", "Πάτρας ΟΔΥΣΣΕΎΣ"),
        ("Nguyễn Việt", "Nguye\u0302\u0303n Vie\u0323\u0302t"),
        ("istanbul hilton", "İstanbul Hilton"),
        ("ISPARTA", "ısparta"),
        ("Tom’s “secret” plan", 'Tom\'s "secret" plan'),
        ("Müllerstraße 12", "MÜLLERSTRASSE 12"),
        ("Wessel Lossow", "Weßel Loßow"),
        ("각하 만세다", "\u1100\u1161\u11a8하 \ub9cc\uc138\ub2e4"),
    ],
)
def test_the_spellings_of_a_letter_are_the_same(text: str, other: str) -> None:
    for one, two in ((text, other), (other, text)):
        assert TextMatcher(one).is_in(f"at {two} it")
        assert TextMatcher(one).is_in(json.dumps(f"at {two} it"))
        assert TextMatcher(one).redact(two) == ERASED
        decomposed = unicodedata.normalize("NFD", f"{two}.")
        assert not TextMatcher(one).is_in(TextMatcher(one).blot(decomposed))


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("Nguyễn Việt", "Nguy\u00ea\u0303n Vi\u00ea\u0323t"),
        ("ab\u0323\u0307cdefg", "ab\u0307\u0323cdefg"),
    ],
)
def test_accents_in_any_order_are_the_same(text: str, other: str) -> None:
    for one, two in ((text, other), (other, text)):
        assert TextMatcher(one).is_in(f"at {two} it")
        assert TextMatcher(one).redact(two) == ERASED


def test_a_short_text_counts_only_as_a_word_of_its_own() -> None:
    matcher = TextMatcher("Ann")
    assert matcher.redact("Ann's channel, ann; ANNA") == f"{ERASED}'s channel, {ERASED}; ANNA"
    assert matcher.redact('{"content":"hi\\nAnn"}') == f'{{"content":"hi\\n{ERASED}"}}'
    for text in ("“Ann”", "—Ann…", "我妹妹Ann住这儿", "\u00bfAnn?"):
        assert matcher.is_in(text), text
        assert matcher.is_in(json.dumps(text)), text
    for text in ("éAnn", "Annə", "Анн", "Ann1", "xAnn"):
        assert not matcher.is_in(text), text
        assert not matcher.is_in(json.dumps(text)), text
    assert TextMatcher("王小明").is_in("我是王小明呀")
    assert TextMatcher("walrus").is_in("Walruses")


@pytest.mark.parametrize("name", ["王伟", "서울"])
def test_a_name_of_two_syllables_is_found_within_others(name: str) -> None:
    assert TextMatcher(name).redact_plain(f"与{name}见面") == f"与{ERASED}见面"


@pytest.mark.parametrize("text", ["", "ab", " a  ", "...", "   ", "王"])
def test_too_little_text_is_refused(text: str) -> None:
    with pytest.raises(NanobotError):
        TextMatcher(text)


@pytest.mark.parametrize("text", ['"secret" plan', "übersecret", "C:\\secret", "secret plan"])
def test_long_runs_of_backslashes_take_no_time(text: str) -> None:
    matcher, run = TextMatcher(text), "\\" * 300_000
    assert not matcher.is_in(f"{run} secret{run} plan übersecre{run}")
    assert matcher.redact_plain(f"{run} {text}") == f"{run} {ERASED}"


def test_what_tells_records_apart_stays() -> None:
    matcher = TextMatcher("telegram")
    line = '{"key":"telegram:1","telegram":1,"content":"on telegram","metadata":{"x":"telegram"}}'
    redacted = matcher.redact(line)
    assert json.loads(redacted) == {
        "key": "telegram:1",
        "telegram": 1,
        "content": f"on {ERASED}",
        "metadata": {"x": ERASED},
    }


def test_the_names_of_tools_stay_and_their_arguments_do_not() -> None:
    call = {"name": "read_file", "arguments": '{"path":"read_file.md"}'}
    redacted = json.loads(TextMatcher("read_file").redact(json.dumps({"function": call})))
    assert redacted == {"function": {"name": "read_file", "arguments": f'{{"path":"{ERASED}.md"}}'}}


def test_lines_of_json_are_redacted_one_by_one() -> None:
    lines = '{"content":"a walrus"}\n\n{"content":"a  cat"}\n'
    assert (
        TextMatcher("walrus").redact(lines)
        == f'{{"content":"a {ERASED}"}}\n\n{{"content":"a  cat"}}\n'
    )


def test_a_file_of_facts_loses_whole_lines() -> None:
    text = "# Facts\n- sister Ann, in Oslo\n- a cat\n- my sister\n  Ann again\nend"
    assert TextMatcher("sister Ann").remove_lines(text) == "# Facts\n- a cat\nend"
    assert TextMatcher("sister Ann").remove_lines("sister Ann") == ""


def test_what_is_put_in_its_place_is_as_long() -> None:
    assert TextMatcher("a walrus").blot("a walrus, a  WALRUS") == "[erased], [erased]*"


@given(st.text(min_size=3, max_size=12), st.text(max_size=20), st.text(max_size=20))
def test_whatever_is_redacted_is_gone_and_json_stays_json(
    text: str, before: str, after: str
) -> None:
    try:
        matcher = TextMatcher(text)
    except NanobotError:
        return
    if matcher.is_in(ERASED):
        return
    line = json.dumps({"content": f"{before} {text} {after}"})
    redacted = matcher.redact(line)
    assert not matcher.is_in(json.loads(redacted)["content"])
