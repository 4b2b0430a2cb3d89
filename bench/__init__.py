"""Benchmarks and fault campaigns; `python -m bench.all` runs them, docs/performance.md explains."""
