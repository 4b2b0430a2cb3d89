"""The pages: each module has the routes of one, and renders templates of its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanobot_web.site import Routes


def routes() -> Routes:
    """All of them."""
    from nanobot_web.pages import activity, chat, files, health, settings

    return {**chat.ROUTES, **files.ROUTES, **settings.ROUTES, **activity.ROUTES, **health.ROUTES}
