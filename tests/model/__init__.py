"""Tests of the SQL state machine against a model."""
