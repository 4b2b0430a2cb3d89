"""The history: one entry for each stretch of conversation that was put away."""
