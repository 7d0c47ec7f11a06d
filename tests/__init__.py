"""The tests of pgtasks, one file for each behaviour."""
