"""The terminal as a channel: `CliChannel` in the gateway, and the chat that a person types into."""
