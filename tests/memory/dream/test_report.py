"""The report of a Dream for people."""

from __future__ import annotations

from nanobot.memory.dream import DreamReport


def test_a_report_says_what_was_learned_retired_and_held_back() -> None:
    report = DreamReport("owner", 3, ("Lives in Porto",), ("Lives in Lisbon",), ("Owes me money",))
    assert report.text == (
        "While dreaming I learned:\n- Lives in Porto\n\n"
        "Moved to memory/retired.md because they are outdated:\n- Lives in Lisbon\n\n"
        "Pending your approval (`/memory pending`):\n"
        "- Owes me money"
    )


def test_a_digest_says_how_to_undo_it() -> None:
    digest = DreamReport("owner", 1, ("Lives in Porto",), versions=(12,)).digest
    assert digest.endswith("Not right? Undo it with `/dream-restore --version 12`.")
    many = DreamReport("owner", 1, ("Lives in Porto",), versions=(1, 2, 3, 4, 5, 6)).digest
    assert "`/dream-restore --version 6`" in many
    assert "--version 1`" not in many


def test_a_long_report_is_cut_with_a_count() -> None:
    report = DreamReport("owner", 1, tuple(f"fact {number}" for number in range(30)))
    assert report.text.endswith("- fact 11\n- … and 18 more")


def test_what_ended_it_early_is_told() -> None:
    report = DreamReport("owner", 1, ("a",), problem="the budget is spent")
    assert "I had to stop early: the budget is spent" in report.text


def test_what_may_not_go_is_told() -> None:
    report = DreamReport("owner", 1, refused=("Has a cat",))
    assert report.is_news
    assert report.text == (
        "These seem outdated, but I can't remove so many at once, so I kept them:\n- Has a cat"
    )


def test_one_version_undoes_all_of_a_run() -> None:
    assert DreamReport("owner", versions=(7, 8, 12)).undoable == 12
    assert DreamReport("owner").undoable == 0
