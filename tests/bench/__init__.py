"""Tests of the benchmarks, and counts that need no quiet machine."""
