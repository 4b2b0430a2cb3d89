"""Protected paths, and the pinned folders above them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from nanobot.security.confine import parents
from nanobot.security.confine.stage import Layout

_names = st.text("ab", min_size=1, max_size=2)
_paths = st.lists(_names, min_size=1, max_size=4).map("/".join)


def test_folders_above_are_pinned_and_what_is_below_needs_nothing_more() -> None:
    made = Layout.of(["a/b/c", "a/b/c/d", "memory/"], ["people/", "people/x/.git"])
    assert made.locked == ("a/b/c", "memory")
    assert made.hidden == ("people",)
    assert made.pinned == ("a", "a/b")


@settings(max_examples=40)
@given(st.sets(_paths, max_size=8), st.sets(_paths, max_size=8))
def test_everything_is_covered_and_nothing_above_can_be_moved(
    locked: set[str], hidden: set[str]
) -> None:
    made = Layout.of(locked, hidden)
    covered = {*made.locked, *made.hidden}
    for path in locked | hidden:
        assert covered & {path, *parents(path)}
    for path in hidden:
        assert {*made.hidden} & {path, *parents(path)}
    for path in covered:
        fixed = {*made.pinned, *covered}
        above = parents(path)
        assert all(folder in fixed or {*made.locked} & {*parents(folder)} for folder in above)
    for index, path in enumerate(made.pinned):
        assert not {*parents(path)} & {*made.pinned[index:]}
