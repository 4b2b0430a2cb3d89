"""The one place that builds the object graph. `gateway.Gateway` is the list of what a nanobot is
made of, and its life; the other modules build a part each: `base` what all else is built on,
`memory`, `tools`, `services` the agent and what runs around it, `operations` and `commands`
the ways in."""
