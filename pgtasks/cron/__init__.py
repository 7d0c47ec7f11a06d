"""Cron schedules: our grammar in front of croniter, our rule for clock changes behind it.

``fields`` names the columns, ``grammar`` and ``items`` read them, ``calendar`` finds the next
time on the wall, ``zone`` knows what a clock shows when, ``schedule`` joins the two, and
``description`` says it in English. Nothing here does I/O but loading time zones.
"""

from __future__ import annotations

from pgtasks.cron.schedule import CronSchedule

__all__ = ["CronSchedule"]
