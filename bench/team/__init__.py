"""Several workers of one team under faults, and what they cost: see `bench.team.__main__`."""
