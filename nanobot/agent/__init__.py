"""The agent: what happens to a message between the bus and the outbox."""
