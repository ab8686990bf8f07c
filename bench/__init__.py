"""Benchmarks: one module an operator, each a command of its own, as in `python -m bench.slice1`."""
