"""Tests of `pgtasks worker --processes`: restarts, signals, and what dead workers leave."""
