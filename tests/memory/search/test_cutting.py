"""Documents are cut into citable passages without losing text."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from nanobot.memory.search.library import LONGEST, cut_text


def test_a_short_document_is_one_passage_that_begins_where_it_does() -> None:
    cuts = cut_text("\n\n# Boats\n\nThe boat lies in Faro.\n", headings=True)
    assert [(cut.line, cut.text) for cut in cuts] == [(3, "# Boats\n\nThe boat lies in Faro.")]


def test_a_passage_ends_where_a_new_heading_begins_once_it_is_long_enough() -> None:
    long = "word " * 150
    cuts = cut_text(f"# One\n\n{long}\n\n# Two\n\nshort\n", headings=True)
    assert [cut.line for cut in cuts] == [1, 5]
    assert cuts[1].text == "# Two\n\nshort"


def test_small_sections_stand_together() -> None:
    cuts = cut_text("# One\n\na b\n\n# Two\n\nc d\n", headings=True)
    assert len(cuts) == 1


def test_what_does_not_begin_with_its_heading_carries_it() -> None:
    paragraphs = "\n\n".join(f"{n} " + "word " * 180 for n in range(3))
    cuts = cut_text(f"# Sailing\n\n{paragraphs}", headings=True)
    assert [cut.heading for cut in cuts] == ["", "Sailing", "Sailing"]
    assert cuts[1].searchable.startswith("Sailing\n1 word")


def test_a_hash_in_plain_text_is_no_heading() -> None:
    cuts = cut_text(f"# a\n\n{'x ' * 600}\n\nb")
    assert [cut.heading for cut in cuts] == [""] * len(cuts)


def test_a_long_paragraph_is_cut_at_the_ends_of_sentences() -> None:
    sentence = "The boat lies in the harbour of Faro. "
    cuts = cut_text(sentence * 100)
    assert len(cuts) > 2
    assert all(cut.text.endswith("Faro.") for cut in cuts)


def test_lines_are_counted_through_a_long_paragraph() -> None:
    text = "\n".join(f"line {n} has words in it" for n in range(1, 201))
    for cut in cut_text(text):
        assert cut.text.startswith(f"line {cut.line} ")


@given(st.text(alphabet="ab#` \n.。中文-", max_size=4_000), st.booleans())
def test_no_text_is_lost_and_no_passage_is_too_long(text: str, headings: bool) -> None:
    cuts = cut_text(text, headings=headings)
    assert re.sub(r"\s", "", "".join(cut.text for cut in cuts)) == re.sub(r"\s", "", text)
    assert all(0 < len(cut.text) <= LONGEST for cut in cuts)
    lines = text.split("\n")
    for cut in cuts:
        assert cut.text.split("\n")[0].strip() in lines[cut.line - 1]
