"""The tools by which the agent writes memory, and the gate in front of them."""
