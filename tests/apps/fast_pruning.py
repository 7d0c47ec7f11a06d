"""The basic app in a worker that begins to prune at once."""

from pgtasks.engine import retention
from tests.apps.basic import app

__all__ = ["app"]

retention.PRUNE_AGAIN_S = 0.1
