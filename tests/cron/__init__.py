"""Cron schedules, held against a brute-force reference."""
