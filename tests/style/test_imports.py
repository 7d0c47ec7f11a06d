"""`import pgtasks` stays cheap."""

import subprocess
import sys

HEAVY = ("alembic", "sqlalchemy", "rich", "typer", "prometheus_client", "croniter")


def test_the_package_loads_nothing_heavy() -> None:
    """Each of these costs 0.1 to 0.6 s, which every producer would pay at its start."""
    code = f"import pgtasks, sys; assert pgtasks.__file__; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []
