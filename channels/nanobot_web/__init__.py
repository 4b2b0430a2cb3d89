"""nanobot in a browser: a channel to talk through, and pages that show the whole gateway."""
