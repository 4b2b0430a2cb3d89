"""Long pastes are folded in the input line and sent in full."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.document import Document

from nanobot_cli.typed import ChatHistory, Pastes

LONG = "\n".join(map(str, range(120)))


def test_only_long_texts_are_folded_and_each_has_its_own_label() -> None:
    pastes = Pastes()
    assert pastes.fold("a\r\nb\rc") == "a\nb\nc"
    assert pastes.fold(LONG) == pastes.fold(LONG + "") == "[pasted 120 lines]"
    assert pastes.fold(LONG + "!") == "[pasted 120 lines, 2]"
    assert pastes.fold("x" * 1_001) == "[pasted 1,001 characters]"
    typed = "see [pasted 120 lines, 2] and [pasted 120 lines]"
    assert pastes.unfold(typed) == f"see {LONG}! and {LONG}"
    assert pastes.has_folded(typed)
    assert not pastes.has_folded("[pasted 7 lines]")


def test_a_command_is_never_hidden_in_a_paste() -> None:
    assert Pastes().fold(f" /forget {LONG}") == f" /forget {LONG}"


def test_a_paste_can_be_opened_and_found_before_the_cursor() -> None:
    pastes = Pastes()
    label = pastes.fold(LONG)
    opened = pastes.open(Document(f"see {label} ok", 4 + len(label)))
    assert (opened.text, opened.cursor_position) == (f"see {LONG} ok", 4 + len(LONG))
    assert pastes.ending(Document(f"see {label}")) == label
    assert pastes.ending(Document("a]")) == pastes.ending(Document("")) == ""


@given(st.lists(st.text(max_size=3).map(lambda end: f"{LONG}{end} [pasted 120 lines]"), max_size=4))
def test_labels_in_a_pasted_text_stay(texts: list[str]) -> None:
    pastes = Pastes()
    pastes.fold(LONG)
    typed = [pastes.fold(text) for text in texts]
    expected = [text.replace("\r", "\n") for text in texts]
    assert pastes.unfold(" ".join(typed)) == " ".join(expected)


def test_the_history_has_pastes_in_full_and_folds_them_again(tmp_path: Path) -> None:
    pastes = Pastes()
    history = ChatHistory(tmp_path / "history", pastes)
    history.append_string(f"see {pastes.fold(LONG)}")
    assert "\n+119\n" in (tmp_path / "history").read_text()
    later = Pastes()
    (folded,) = ChatHistory(tmp_path / "history", later).load_history_strings()
    assert folded == "[pasted 120 lines]"
    assert later.unfold(folded) == f"see {LONG}"
