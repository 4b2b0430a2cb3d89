"""Several workers of one team under faults, and their costs. See `bench.team.__main__`."""
