"""The terminal as a channel: `CliChannel` in the gateway, and the chat at a terminal."""
