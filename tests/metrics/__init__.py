"""Metrics: what is counted, what is read from the database, and what the pages say."""
