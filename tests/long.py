"""Tests that take too long for every run, or need a quiet machine: `PGTASKS_LONG_TESTS=1 ./dev test`."""

import os

import pytest

IS_LONG = bool(os.environ.get("PGTASKS_LONG_TESTS"))
LONG = pytest.mark.skipif(not IS_LONG, reason="takes long; set PGTASKS_LONG_TESTS=1")
