"""Enqueueing: what is inserted, what is refused, and how."""
