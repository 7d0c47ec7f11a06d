"""Stopping: signals, exit codes, and what is given back."""
