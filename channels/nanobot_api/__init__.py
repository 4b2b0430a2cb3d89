"""An OpenAI-compatible API, with nanobot behind it."""

from nanobot_api.channel import ApiChannel as ApiChannel
