"""Tests of claims: what a worker takes, in which order, and when it looks."""
