"""Handlers: the functions registered for task names, and how payloads fit their parameters."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal

from pgtasks.context import Context
from pgtasks.errors import ConfigError, EnqueueError
from pgtasks.model import TaskType
from pgtasks.retry import Retry

Kind = Literal["async", "thread"]
Where = Literal["auto", "process"]


class ArgumentsError(EnqueueError, TypeError):
    """The arguments do not fit the handler's parameters."""


@dataclass(frozen=True, slots=True)
class Handler:
    """One registered function with the settings of its tasks.

    ``timeout_s`` None means no timeout. ``required`` and ``allowed`` are the names of the
    payload's keys, ``positional`` those whose arguments may come without a name; ``open_ended``
    handlers (with ``**kwargs``) take any. One that is ``isolated`` runs in a child process of the
    worker, which runs nothing else meanwhile.
    """

    name: str
    function: Callable[..., Any]
    kind: Kind
    queue: str
    priority: int
    retry: Retry
    timeout_s: float | None
    signature: inspect.Signature
    context_parameter: str | None
    required: frozenset[str]
    allowed: frozenset[str]
    positional: tuple[str, ...]
    open_ended: bool
    isolated: bool = False
    keep_result: bool = True

    def payload_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Give a call's arguments as the payload that makes it; raises ArgumentsError.

        To bind a signature takes longer than all the rest of an enqueue in bulk, so that is left to
        the calls that are wrong, or reach a handler's ``**kwargs``.
        """
        plain = dict(zip(self.positional, args, strict=False)) | kwargs
        keys, is_clear = plain.keys(), len(plain) == len(args) + len(kwargs)
        if is_clear and (keys == self.allowed or self.required <= keys <= self.allowed):
            return plain
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentsError(f"{self.name}{self.signature}: {error}") from None
        payload = dict(bound.arguments)
        for parameter in self.signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                payload.update(payload.pop(parameter.name, {}))
        return payload

    def arguments_of(self, payload: object, context: Callable[[], Context]) -> dict[str, Any]:
        """Give the keyword arguments a payload stands for; raises ArgumentsError."""
        if not isinstance(payload, dict):
            raise ArgumentsError(
                f"the payload of {self.name} must be a JSON object of arguments, "
                f"got {'null' if payload is None else type(payload).__name__}"
            )
        keys = payload.keys()
        if not (self.required <= keys and (self.open_ended or keys <= self.allowed)):
            raise ArgumentsError(self._misfit(keys))
        if self.context_parameter is not None:
            payload[self.context_parameter] = context()
        return payload

    def _misfit(self, keys: Any) -> str:
        missing = sorted(self.required - keys)
        unknown = [] if self.open_ended else sorted(map(str, keys - self.allowed))
        parts = []
        if missing:
            parts.append(f"missing {', '.join(missing)}")
        if unknown:
            parts.append(f"unknown {', '.join(unknown[:10])}")
        return f"the payload does not fit {self.name}{self.signature}: {'; '.join(parts)}"

    def as_type(self) -> TaskType:
        """Give what a worker tells the database about this handler."""
        return TaskType(
            name=self.name,
            queue=self.queue,
            priority=self.priority,
            max_attempts=self.retry.max_attempts,
            timeout_s=self.timeout_s,
            retry=self.retry.as_json(),
        )


def name_of(function: Callable[..., Any]) -> str:
    """Give the task name a function gets when none is given; raises ConfigError when it has no name."""
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        raise ConfigError(f'{function!r} has no name of its own; give one with @app.task(name="…")')
    return name


def handler(
    function: Callable[..., Any],
    *,
    name: str,
    queue: str,
    priority: int,
    retry: Retry,
    timeout_s: float | None,
    executor: Where = "auto",
    keep_result: bool = True,
) -> Handler:
    """Describe a function as a handler.

    Raises ConfigError when its parameters cannot be passed by name, when it is a generator, which
    would never run, or when there is no such ``executor``.
    """
    _check_executor(executor, name)
    if isinstance(function, type):
        raise ConfigError(f"task {name!r}: a handler is a def or an async def, got {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"task {name!r} is a generator function; a handler is a def or an async def that returns")
    signature, context_parameter = _split_context(function, inspect.signature(function), name)
    for parameter in signature.parameters.values():
        if parameter.kind in {parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL}:
            raise ConfigError(
                f"task {name!r}: parameter {parameter} cannot be passed by name; payloads are JSON objects of arguments"
            )
    named = {p.name: p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD}
    return Handler(
        name=name,
        function=function,
        kind="async" if _is_async(function) else "thread",
        queue=queue,
        priority=priority,
        retry=retry,
        timeout_s=timeout_s,
        signature=signature,
        context_parameter=context_parameter,
        required=frozenset(key for key, p in named.items() if p.default is p.empty),
        allowed=frozenset(named),
        positional=tuple(key for key, p in named.items() if p.kind is p.POSITIONAL_OR_KEYWORD),
        open_ended=len(named) < len(signature.parameters),
        isolated=executor == "process",
        keep_result=keep_result,
    )


def _check_executor(executor: object, name: str) -> None:
    known = typing.get_args(Where)
    if executor not in known:
        close = get_close_matches(str(executor), known, n=1, cutoff=0.4)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ConfigError(f"task {name!r}: executor must be {' or '.join(map(repr, known))}, got {executor!r}{hint}")


def _is_async(function: Callable[..., Any]) -> bool:
    """Tell whether calling it gives a coroutine: an async def, also as a partial or as ``__call__``."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _split_context(
    function: Callable[..., Any], signature: inspect.Signature, name: str
) -> tuple[inspect.Signature, str | None]:
    """Take the parameter annotated with Context out of a signature."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # noqa: BLE001 - a name that is not importable at run time says nothing about Context
        hints = dict(getattr(function, "__annotations__", {}))
    found = [key for key in signature.parameters if _means_context(hints.get(key))]
    if not found:
        return signature, None
    if len(found) > 1:
        raise ConfigError(f"task {name!r} has several Context parameters: {', '.join(found)}")
    rest = [parameter for key, parameter in signature.parameters.items() if key != found[0]]
    return signature.replace(parameters=rest), found[0]


def _means_context(hint: object) -> bool:
    return (
        hint is Context
        or (isinstance(hint, str) and hint.removeprefix("pgtasks.") == "Context")
        or Context in typing.get_args(hint)
    )


@dataclass
class Handlers(Mapping[str, Handler]):
    """The handlers of one app, by task name."""

    _by_name: dict[str, Handler] = field(default_factory=dict)

    def add(self, one: Handler) -> None:
        """Register a handler; raises ConfigError when its name is taken by another function."""
        if one.name in self._by_name:
            raise ConfigError(
                f"task {one.name!r} is registered twice, by {_where(self._by_name[one.name])} and {_where(one)}; "
                'give one of them another name with @app.task(name="…")'
            )
        self._by_name[one.name] = one

    def __getitem__(self, name: str) -> Handler:
        """Give the handler of a name."""
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._by_name)

    def __len__(self) -> int:
        """Count the handlers."""
        return len(self._by_name)

    def like(self, name: str) -> str:
        """Give " (did you mean …?)" for a name that is not there, or nothing."""
        close = get_close_matches(name, self._by_name, n=1)
        return f" (did you mean {close[0]!r}?)" if close else ""


def _where(one: Handler) -> str:
    return f"{one.function.__module__}.{one.function.__qualname__}"
