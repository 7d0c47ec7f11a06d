"""The figures of a run, and the table that people read. Pure: from a history to numbers, from numbers to text."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tests.chaos.checker import INVARIANTS, Violation
from tests.chaos.history import NS, History

# Lease, sweep and start of a suspect, several times over.
UNDISTURBED_S = 6


def figures(history: History, violations: Sequence[Violation], faults: Mapping[str, int]) -> dict[str, Any]:
    """Count what a run was about, with keys that stay."""
    sent = Counter(one.status for one in history.sent)
    places = Counter(row.place for row in history.rows)
    doubtful = [one.token for one in history.sent if one.status == "info"]
    recovered = recoveries(history)
    stops = sorted((deed.ended - deed.began) / NS for deed in history.deeds if deed.what == "term" and deed.alone)
    return {
        "tasks": len(history.rows_of),
        "enqueued": len(history.sent),
        "committed": sent["ok"],
        "existing": sent["existing"],
        "rolled_back": sent["rolled_back"],
        "indeterminate": len(doubtful),
        "indeterminate_present": sum(token in history.rows_by_token for token in doubtful),
        "completed": places["completed"],
        "dead": places["dead"],
        "cancelled": places["cancelled"],
        "fires": len(history.fires),
        "starts": len(history.starts),
        "reruns": sum(len(starts) > 1 for starts in _effects_by_task(history).values()),
        "faults": dict(sorted(faults.items())),
        "kills": len(history.deaths),
        "pauses": sum(deed.what == "pause" for deed in history.deeds),
        "lost": _lost(history),
        "completed_twice": sum(sum(row.place == "completed" for row in rows) > 1 for rows in history.rows_of.values()),
        "stale_writes_refused": history.refused,
        "recovery_s": quantiles(recovered),
        "stop_s": quantiles(stops),
        "drain_s": round(history.drain_s, 2),
        "invariants": {
            one.id: "not applicable" if one.check is None else _verdict(one.id, violations)
            for one in INVARIANTS.values()
        },
    }


def _effects_by_task(history: History) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for task_id, lease_id in history.effects:
        found.setdefault(task_id, []).append(lease_id)
    return found


def _lost(history: History) -> int:
    """Count the committed tasks that are nowhere, or have not ended after the drain."""
    ended = {row.token for row in history.rows if row.place != "live"}
    return sum(one.status == "ok" and one.token not in ended for one in history.sent)


def _verdict(invariant: str, violations: Sequence[Violation]) -> str:
    return "violated" if any(one.invariant == invariant for one in violations) else "ok"


def recoveries(history: History) -> list[float]:
    """Give, for each task that ran in a process as it was killed, the seconds until it started again.

    Left out are kills around which something struck all workers: nothing starts while the server is away.
    """
    found = []
    for pid, at in history.deaths.items():
        if _is_disturbed(history, at):
            continue
        for mark in history.starts:
            if not mark.of(pid) or mark.at > at:
                continue
            if any(other.event in {"effect", "outcome"} for other in history.marks_of[mark.task_id, mark.lease_id]):
                continue
            later = [one.at for one in history.starts_of[mark.task_id] if one.lease_id > mark.lease_id]
            if later:
                found.append((min(later) - at) / NS)
    return sorted(found)


def _is_disturbed(history: History, at: int) -> bool:
    """Tell whether some other fault was about, from a second before a kill until the work should be back."""
    until = at + UNDISTURBED_S * NS
    return any(deed.pid is None and deed.began < until and deed.ended > at - NS for deed in history.deeds)


def quantiles(values: Sequence[float]) -> dict[str, float | int | None]:
    """Give the median, the 99th percentile and the largest of sorted values, and how many there are."""
    if not values:
        return {"count": 0, "p50": None, "p99": None, "max": None}
    last = len(values) - 1
    picked = {"p50": values[last // 2], "p99": values[min(last, len(values) * 99 // 100)], "max": values[-1]}
    return {"count": len(values), **{name: round(value, 2) for name, value in picked.items()}}


def table(document: Mapping[str, Any], violations: Sequence[Violation]) -> str:
    """Give a run as text for a terminal."""
    recovery, stop = document["recovery_s"], document["stop_s"]
    struck = ", ".join(f"{name} {count}" for name, count in document["faults"].items()) or "none"
    ends = f"{document['completed']:,} completed, {document['dead']:,} dead, {document['cancelled']:,} cancelled"
    doubtful = f"{document['indeterminate']:,} indeterminate ({document['indeterminate_present']:,} of them there)"
    sent = ", ".join(
        f"{document[name]:,} {name.replace('_', ' ')}" for name in ("committed", "rolled_back", "existing")
    )
    lines = [
        ("tasks", f"{document['tasks']:,}: {ends}"),
        ("enqueued", f"{sent}, {doubtful}"),
        ("slots of schedules", f"{document['fires']:,}"),
        ("faults", struck),
        ("workers", f"{document['kills']:,} killed, {document['pauses']:,} paused"),
        ("lost", f"{document['lost']:,}"),
        ("completed twice", f"{document['completed_twice']:,}"),
        ("stale writes refused", f"{document['stale_writes_refused']:,}"),
        ("effect more than once", f"{document['reruns']:,} tasks"),
        (
            "recovery after a kill",
            f"p50 {_s(recovery['p50'])}, p99 {_s(recovery['p99'])} ({recovery['count']:,} tasks)",
        ),
        ("stop after SIGTERM", f"p50 {_s(stop['p50'])}, p99 {_s(stop['p99'])} ({stop['count']:,} workers)"),
        ("drain", _s(document["drain_s"])),
    ]
    text = [f"  {name:22} {value}" for name, value in lines]
    text.append("")
    for one in INVARIANTS.values():
        verdict = document["invariants"][one.id]
        text.append(f"  {one.id:4} {one.title:36} {_said(verdict, one.why_not)}")
        for found in violations:
            if found.invariant == one.id:
                text += [f"       {found.sentence}", *(f"         {piece}" for piece in found.evidence)]
    return "\n".join(text)


def _said(verdict: str, why_not: str) -> str:
    return {"ok": "ok", "violated": "VIOLATED"}.get(verdict, f"does not apply: {why_not}")


def _s(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
