"""nanobot in a browser: a channel to chat in, and pages about the whole gateway."""
