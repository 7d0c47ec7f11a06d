"""Measurements: `python -m bench SCENARIO`, or `./dev bench SCENARIO`; docs/benchmarks.md explains them."""
