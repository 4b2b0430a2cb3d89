"""Why something is remembered: the chain from a line back to what was said."""
