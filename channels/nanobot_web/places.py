"""The four main places of the page, and the views of each."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class View(Struct, frozen=True):
    """A page in a place: its path and its name."""

    path: str
    name: str


class Place(Struct, frozen=True):
    """A main place. Its link opens the first view. `everyone`: it is not only for the owner."""

    name: str
    views: tuple[View, ...]
    everyone: bool = False


PLACES = (
    Place("Chat", (View("/chat", "Chat"),), everyone=True),
    Place("Memory", (View("/memory", "Memory"),), everyone=True),
    Place(
        "Activity",
        (
            View("/activity", "Turns"),
            View("/jobs", "Jobs"),
            View("/approvals", "Approvals"),
            View("/activity/tools", "Tool calls"),
            View("/figures", "Statistics"),
            View("/activity/log", "Log"),
        ),
    ),
    Place(
        "Settings",
        (
            View("/settings/model", "Model"),
            View("/settings/answers", "Answers"),
            View("/people", "People and channels"),
            View("/settings/memory", "Memory"),
            View("/settings/approvals", "Approvals"),
            View("/health", "Health"),
            View("/settings", "Advanced"),
        ),
    ),
)


def find_place(path: str) -> tuple[Place, View]:
    """Return the place and the view of a page. Other pages belong to the chat."""
    found = [
        (len(view.path), place, view)
        for place in PLACES
        for view in place.views
        if _is_below(path, view.path)
    ]
    if not found:
        return PLACES[0], PLACES[0].views[0]
    _, place, view = max(found, key=lambda one: one[0])
    return place, view


def places_for(*, is_owner: bool) -> Sequence[Place]:
    """Return the places that a person sees."""
    return [one for one in PLACES if one.everyone or is_owner]


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(f"{top}/")
