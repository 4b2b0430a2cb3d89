"""Where text came from, and how a line of the person's is quoted."""
