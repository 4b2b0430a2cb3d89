"""Benchmarks and fault campaigns. `python -m bench.all` runs them. See docs/performance.md."""
