"""Handlers: how they run, how they end, and what becomes of their tasks."""
