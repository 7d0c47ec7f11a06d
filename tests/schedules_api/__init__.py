"""Tests of what code says about schedules: `app.cron`, and what a handler learns of its slot."""
