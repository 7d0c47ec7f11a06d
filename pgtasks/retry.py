"""When a failed task runs again: exponential backoff with full jitter, safe at any attempt.

Full jitter (a delay drawn evenly between zero and the exponential bound) keeps a thousand
tasks that failed together from coming back together; the rule is the one in Marc Brooker's
"Exponential Backoff And Jitter" (AWS Architecture Blog, 2015).
"""

from __future__ import annotations

import math
import random
from dataclasses import asdict, dataclass
from typing import Any

from pgtasks.errors import ConfigError

MAX_ATTEMPTS_DEFAULT = 10
# What the column holds.
MAX_ATTEMPTS_MOST = 2_147_483_647
DELAY_S_MIN = 0.01


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how soon a failed task runs again.

    ``max_attempts`` counts starts, the first and crashes included. After attempt ``n`` the
    delay is drawn evenly from 0 to ``min(cap, base * factor ** (n - 1))`` seconds. With
    ``on`` only these exceptions are retried; those in ``never_on`` never are: the task is
    dead at once. ``jitter=False`` takes the bound itself.

    Raises ConfigError when a value makes no sense.
    """

    max_attempts: int = MAX_ATTEMPTS_DEFAULT
    base: float = 5.0
    factor: float = 2.0
    cap: float = 3600.0
    on: tuple[type[BaseException], ...] = (BaseException,)
    never_on: tuple[type[BaseException], ...] = ()
    jitter: bool = True

    def __post_init__(self) -> None:
        """Refuse a policy that cannot be meant, naming the field."""
        if isinstance(self.max_attempts, bool) or not isinstance(self.max_attempts, int):
            raise ConfigError(f"Retry(max_attempts=) must be a whole number, got {self.max_attempts!r}")
        if not 1 <= self.max_attempts <= MAX_ATTEMPTS_MOST:
            raise ConfigError(
                f"Retry(max_attempts=) must be between 1 and {MAX_ATTEMPTS_MOST}, got {self.max_attempts}"
            )
        for field, least in (("base", 0.0), ("factor", 1.0), ("cap", 0.0)):
            value = getattr(self, field)
            if not isinstance(value, int | float) or not math.isfinite(value) or value < least:
                raise ConfigError(f"Retry({field}=) must be a number of at least {least:g}, got {value!r}")
        for field in ("on", "never_on"):
            classes = getattr(self, field)
            classes = classes if isinstance(classes, tuple) else (classes,)
            if not all(isinstance(c, type) and issubclass(c, BaseException) for c in classes):
                raise ConfigError(f"Retry({field}=) takes exception classes, got {classes!r}")
            object.__setattr__(self, field, classes)

    def retries(self, error: BaseException) -> bool:
        """Tell whether this kind of error is worth another attempt."""
        return isinstance(error, self.on) and not isinstance(error, self.never_on)

    def bound_s(self, attempt: int) -> float:
        """Give the longest delay after this attempt, in seconds; never overflows."""
        if self.base == 0 or self.cap == 0:
            return DELAY_S_MIN
        exponent = (max(1, attempt) - 1) * math.log(self.factor)
        # Compared as logarithms: factor ** attempt would overflow a float from 1024 on.
        if exponent + math.log(self.base) >= math.log(self.cap):
            return max(DELAY_S_MIN, self.cap)
        return max(DELAY_S_MIN, self.base * math.exp(exponent))

    def delay_s(self, attempt: int, rng: random.Random) -> float:
        """Draw the delay after this attempt, in seconds: above 0, at most the cap."""
        bound = self.bound_s(attempt)
        return max(DELAY_S_MIN, rng.random() * bound) if self.jitter else bound

    def as_json(self) -> dict[str, Any]:
        """Give the policy as the plain values kept in ``pgtasks.task_types.retry``."""
        values = asdict(self)
        for field in ("on", "never_on"):
            values[field] = [f"{c.__module__}.{c.__qualname__}" for c in values[field]]
        return values
