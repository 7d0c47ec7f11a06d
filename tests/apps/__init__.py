"""Apps for workers under test."""
