"""What watches a worker: the pages of its port, and what systemd is told. Without either it costs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from pgtasks import events
from pgtasks.engine.meter import Meter
from pgtasks.engine.vitals import Vitals
from pgtasks.health import judgement
from pgtasks.health.pulse import Pulse
from pgtasks.health.systemd import Systemd
from pgtasks.settings import WorkerSettings


@contextmanager
def watching(settings: WorkerSettings, systemd: Systemd, place: int) -> Iterator[Watch | None]:
    """Give who watches a worker, None when nobody wants to know; raises ConfigError when its port is taken.

    ``place`` is the worker's place among those of its supervisor, which also has the port's next numbers.
    """
    if not (settings.metrics_port or systemd.listens):
        yield None
        return
    with ExitStack() as stack:
        watch = Watch(systemd, Meter() if settings.metrics_port else None)
        if settings.metrics_port:
            stack.callback(events.subscribe(watch.hear))
            watch.serve(stack, settings, settings.metrics_port + place)
        stack.enter_context(Pulse(systemd, status=watch.status, failing=watch.failing, hangs=watch.hangs))
        yield watch


class Watch:
    """Watches one worker; what a worker calls ``Ops``."""

    def __init__(self, systemd: Systemd, meter: Meter | None) -> None:
        self._systemd = systemd
        self.meter = meter
        self.vitals: Vitals | None = None

    def working(self, vitals: Vitals) -> None:
        """Take what can be read of the worker, and say that it is ready."""
        self.vitals = vitals
        self._systemd.tell(READY="1", STATUS=self.status())

    def stopping(self, *, recycles: bool) -> None:
        """Say that it ends, unless it starts again in this very process."""
        self._systemd.tell(**({} if recycles else {"STOPPING": "1"}), STATUS=self.status())

    def failing(self) -> list[str]:
        """Give the reasons why the worker is not alive."""
        return judgement.not_live(self.vitals.signs() if self.vitals is not None else None)

    def hangs(self) -> list[str]:
        """Give the reasons why a restart might help the worker."""
        return judgement.hangs(self.vitals.signs() if self.vitals is not None else None)

    def status(self) -> str:
        """Say in a line what the worker does."""
        if self.vitals is None:
            return "starting"
        slots = self.vitals.slots_by_state()
        stuck = f", {slots['stuck']} stuck" if slots["stuck"] else ""
        doing = "draining" if self.vitals.switch.asked.is_set() else f"serving {', '.join(self.vitals.info.queues)}"
        return f"{doing}: {slots['busy']} of {sum(slots.values())} slots busy{stuck}"

    def hear(self, event: str, fields: events.Fields) -> None:
        """Count what an event tells."""
        if self.meter is not None:
            self.meter.hear(event, fields)

    def serve(self, stack: ExitStack, settings: WorkerSettings, port: int) -> None:
        """Serve the pages until the stack ends; raises ConfigError when that port cannot be had."""
        # Here, because most workers have no port.
        from pgtasks.health.server import Answer, HealthServer, verdict
        from pgtasks.metrics.collector import FactsCollector, WorkerCollector, make_registry, page_of
        from pgtasks.metrics.facts import DatabaseReader, FactsKeeper

        keeper = FactsKeeper(DatabaseReader(settings.dsn, pooler=settings.pooler))
        registry = make_registry(WorkerCollector(self.meter or Meter(), lambda: self.vitals), FactsCollector(keeper))

        def ready() -> list[str]:
            signs = self.vitals.signs() if self.vitals is not None else None
            return judgement.not_ready(signs, keeper.schema_problem())

        pages = {
            "/metrics": lambda accept: Answer(200, *page_of(registry, accept)),
            "/livez": lambda _accept: verdict(self.failing()),
            "/readyz": lambda _accept: verdict(ready()),
        }
        server = HealthServer(settings.metrics_host, port, pages)
        stack.enter_context(keeper)
        stack.enter_context(server)
        events.info("metrics served", host=settings.metrics_host, port=server.port)
