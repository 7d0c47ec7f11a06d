"""`python -m pgtasks`, the same as `pgtasks`."""

from pgtasks.cli import main

main()
