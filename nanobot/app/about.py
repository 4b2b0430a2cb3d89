"""What a nanobot is, and what its model costs: plain values from the settings."""

from __future__ import annotations

import nanobot
from nanobot.app.model import model_name
from nanobot.config.settings import Settings
from nanobot.gateway.report import About
from nanobot.providers.prices import Prices


def about(settings: Settings) -> About:
    """What does not change while this nanobot runs."""
    model = settings.model
    return About(nanobot.__version__, str(settings.home), model.provider, model_name(model))


def prices(settings: Settings) -> Prices:
    """What the model costs."""
    set_ = settings.model.prices
    return Prices(set_.input, set_.cached_input, set_.output)
