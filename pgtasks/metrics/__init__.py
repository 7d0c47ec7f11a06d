"""Metrics for Prometheus: what a worker counts, and facts about its database."""
