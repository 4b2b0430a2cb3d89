"""The agent: the path of a message from the inbox to the outbox."""
