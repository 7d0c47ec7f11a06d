"""Handlers that never end, and what it costs whom."""
