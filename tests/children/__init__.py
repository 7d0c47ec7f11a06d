"""Tests of child processes: isolated tasks, deaths, stops, the pool."""
