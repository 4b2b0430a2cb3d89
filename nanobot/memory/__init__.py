"""Memory of the agent: plain text files that a person can open, prune and keep in git."""
