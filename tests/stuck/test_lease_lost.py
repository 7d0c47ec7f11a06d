"""What a handler gets when its worker learns that the lease ended; whatever it does, the outcome is dropped."""

import asyncio

import pytest

from pgtasks import App, Context, LeaseLost
from pgtasks.outcome import Lost
from tests.stuck.rig import Rig


def make_app(seen: list[object]) -> App:
    """Return an app whose handlers wait, and note what they get."""
    app = App("postgresql://nowhere")

    @app.task
    async def lets_it_through(context: Context) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            seen.extend([str(error), context.lease_lost])
            raise

    @app.task
    async def asks(context: Context) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            try:
                context.raise_if_cancelled()
            except LeaseLost as error:
                seen.extend([str(error), context.lease_lost])
                raise

    @app.task
    async def goes_on(context: Context) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.extend(["lease", context.lease_lost and context.cancelled])
        return "done"

    add_functions(app, seen)
    return app


def add_functions(app: App, seen: list[object]) -> None:
    """Add the handlers that run in threads."""

    @app.task
    def in_a_thread(context: Context) -> None:
        try:
            while not context.wait_cancelled(60):
                pass
            context.raise_if_cancelled()
        except LeaseLost as error:
            seen.extend([str(error), context.lease_lost])
            raise

    @app.task
    def fails(context: Context) -> None:
        context.wait_cancelled(60)
        seen.extend(["lease", context.lease_lost])
        raise ValueError("the connection was closed")


@pytest.mark.parametrize("name", ["lets_it_through", "asks", "goes_on", "in_a_thread", "fails"])
async def test_the_handler_learns_it_and_its_outcome_is_dropped(name: str) -> None:
    """On the loop as a cancellation that says why, in a thread through the context, on asking as LeaseLost."""
    seen: list[object] = []
    rig = Rig(make_app(seen))
    rig.start(name)
    await rig.until(lambda: any(attempt.context for attempt in rig.executor._running))  # noqa: SLF001 - there is no other sign of it
    ((_, lease_id),) = rig.executor.held()
    rig.executor.lose({lease_id}, "a test took it")
    await rig.until(lambda: rig.outcomes)
    assert rig.outcomes == {name: Lost()}
    said, lost = seen
    assert lost is True
    assert "lease" in str(said)
    rig.executor.close()
