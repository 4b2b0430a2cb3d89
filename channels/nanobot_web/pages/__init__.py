"""The pages: each module has the routes of one, and renders templates of its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanobot_web.site import Routes


def routes() -> Routes:
    """All of them."""
    from nanobot_web.pages import (
        activity,
        approvals,
        chat,
        figures,
        files,
        health,
        jobs,
        memory,
        people,
        settings,
    )

    pages = (activity, approvals, chat, figures, files, health, jobs, memory, people, settings)
    return {at: route for page in pages for at, route in page.ROUTES.items()}
