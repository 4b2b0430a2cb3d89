"""An interface that other programs speak already: OpenAI's, with nanobot behind it."""

from nanobot_api.channel import ApiChannel as ApiChannel
