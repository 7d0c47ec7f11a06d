"""Tests of firing schedules: the plan, the statements, the scheduler, and real processes."""
