"""Tests of `pgtasks demo`."""
