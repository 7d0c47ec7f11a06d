"""Tests of the local server, each with real ones."""
