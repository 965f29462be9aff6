"""``ray-tracing-hooks status``: what each node of a running cluster records, delivers and has waiting."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click

from ray_tracing_hooks._cli.asking import answering_cluster, visiting
from ray_tracing_hooks._cli.options import Number, address_option, examples, json_option, timeout_option
from ray_tracing_hooks._cli.screen import Line, aligned, print_lines, progress, screen_width, until
from ray_tracing_hooks._insight.analysis.wording import count, duration, shortened
from ray_tracing_hooks._ops import cluster, probe
from ray_tracing_hooks._ops.cluster import Answer, Node, Visit
from ray_tracing_hooks._ops.facts import SpoolFacts, spool_as_json
from ray_tracing_hooks._ship.figures import DestinationFigures

VERSION = 1

_UNSET: dict[str, Any] = {"version": 0, "enabled": None, "until": None, "variables": []}
"""What is set where no command has set anything; a node with an older package may not say all of it."""


class NodeStatus(NamedTuple):
    """The status of one node.

    Attributes:
        error: Why there is none; empty if there is one.
        time_ns: When it was taken, by the clock of the node.
        rates: For each spool, how many spans a second its processes have recorded since the last status, if known.
        control: What :func:`~ray_tracing_hooks._ops.change_on_node.in_force` says; None if the node does not say it.
    """

    node: Node
    error: str
    time_ns: int
    spools: tuple[SpoolFacts, ...]
    rates: tuple[float | None, ...]
    control: dict[str, Any] | None = None

    @property
    def rate(self) -> float | None:
        """The rate of all spools, as far as known."""
        known = [rate for rate in self.rates if rate is not None]
        return sum(known) if known else None

    @property
    def is_bad(self) -> bool:
        """Whether the node does not answer, spans are lost, or delivery fails."""
        return (
            bool(self.error)
            or any(spool.figures.unwritten for spool in self.spools)
            or any(
                each.refused or each.dropped or (each.waiting and (each.is_failing or not spool.runs or spool.is_stuck))
                for spool in self.spools
                for each in spool.figures.destinations
            )
        )


def take(visit: Visit, timeout: float, before: Sequence[NodeStatus] = ()) -> list[NodeStatus]:
    """The status of each visited node, with rates since the statuses ``before``."""
    answers = visit.call(probe.spools, {"control": True}, timeout=timeout)
    earlier = {each.node: each for each in before}
    return [_status(node, answers[node], earlier.get(node)) for node in visit.nodes]


def as_json(address: str, statuses: Sequence[NodeStatus]) -> dict[str, Any]:
    """The statuses for programs: members are added, and not changed.

    An object with ``version``, ``address`` and ``nodes``, a list of objects: ``name``, ``id``, ``ip``, ``error`` (null
    if the node has answered), ``time_ns``, ``spans_per_second`` (null if unknown), ``set`` (null if unknown: the
    ``version`` of what is set, 0 for nothing, ``enabled``, null as the cluster was started, ``until``, when spans are
    recorded again, in seconds since the epoch or null, and ``variables``, the names of those that are set) and
    ``spools``: ``path``, ``shipper_runs``, ``exporters``, ``spans_per_second``, and ``figures`` as in
    ``_ship/figures.py``.
    """
    return {
        "version": VERSION,
        "address": address,
        "nodes": [
            {
                "name": each.node.name,
                "id": each.node.id,
                "ip": each.node.ip,
                "error": each.error or None,
                "time_ns": each.time_ns,
                "spans_per_second": each.rate,
                "set": each.control,
                "spools": [
                    {**spool_as_json(spool), "spans_per_second": rate}
                    for spool, rate in zip(each.spools, each.rates, strict=True)
                ],
            }
            for each in statuses
        ],
    }


def _status(node: Node, answer: Answer, before: NodeStatus | None) -> NodeStatus:
    found: dict[str, Any] = answer.value or {}
    error = answer.problem or str(found.get("error", ""))
    time_ns = int(found.get("time_ns", 0))
    spools = tuple(map(SpoolFacts.of, found.get("spools", ())))
    known = {spool.path: spool for spool in before.spools} if before is not None and not before.error else {}
    since = before.time_ns if before is not None else 0
    rates = tuple(_rate(spool, known.get(spool.path), since, time_ns) for spool in spools)
    control = found.get("control")
    return NodeStatus(node, error, time_ns, spools, rates, {**_UNSET, **control} if control is not None else None)


def _rate(now: SpoolFacts, before: SpoolFacts | None, since_ns: int, time_ns: int) -> float | None:
    """Spans a second that were recorded between two statuses of a spool."""
    if before is None or now.figures.began_ns != before.figures.began_ns:
        return None
    more = _recorded(now.figures.destinations) - _recorded(before.figures.destinations)
    if not more:
        return 0.0
    # A shipper takes its figures once a second, and stores them only if they have changed.
    began = max(before.figures.updated_ns, since_ns - 10**9)
    ended = now.figures.updated_ns if now.runs else time_ns
    return max(0.0, more * 1e9 / (ended - began)) if ended > began else None


def _recorded(destinations: Sequence[DestinationFigures]) -> int:
    """How many spans have come to the spool, as far as one destination shows."""
    return max(
        (
            each.delivered + each.refused + each.dropped + each.waiting
            for each in destinations
            if each.signal == "traces"
        ),
        default=0,
    )


_BETWEEN = 2.0
"""Seconds between the two looks of a single status, from which rates are computed: figures are taken once a second."""

_LONGEST_ADDRESS = 40
_TITLES = ("NODE", "WRITERS", "SPANS/S", "TO", "DELIVERED", "WAITING", "OLDEST", "LOST", "RETRIES")


@click.command(
    epilog=examples(
        "ray-tracing-hooks status",
        "ray-tracing-hooks status --address 10.0.0.1:6379 --watch",
    ),
)
@address_option
@click.option("--watch", is_flag=True, help="Refresh until you press Ctrl-C.")
@click.option(
    "--interval",
    type=Number(1, is_seconds=True),
    default=2,
    show_default=True,
    help="Seconds between two refreshes of --watch.",
)
@timeout_option()
@json_option
@click.pass_context
def status(
    context: click.Context, address: str | None, watch: bool, interval: float, timeout: float, in_json: bool
) -> None:
    """Show what each node of a running cluster records, delivers and has waiting.

    WRITERS are processes that record spans. TO is the destination. WAITING is the number of spans that wait on the disk
    of the node, and OLDEST the time since the oldest of them ended. LOST counts spans that the destination refused, or
    that the spool's limit removed. The first line also counts spans that could not be written to disk. Counts start at
    zero when a shipper starts.

    --json prints one object, or one on each line with --watch.

    The exit code is 1 if a node does not answer, spans are lost, or delivery fails.
    """
    found = answering_cluster(address)
    with contextlib.ExitStack() as stack:
        with progress(shown=not in_json) as advance:
            advance("connecting", 0, 1)
            visit = stack.enter_context(visiting(found))
            advance("asking the nodes", 0, 1)
            first = take(visit, timeout)
        if watch:
            _watch(found, visit, first, interval, timeout, in_json=in_json)
            return
        time.sleep(_BETWEEN)
        last = take(visit, timeout, first)
    if in_json:
        click.echo(json.dumps(as_json(found, last), indent=2))
    else:
        print_lines(_lines(found, last))
    if any(each.is_bad for each in last):
        context.exit(1)


def _watch(
    address: str, visit: Visit, first: Sequence[NodeStatus], interval: float, timeout: float, *, in_json: bool
) -> None:
    statuses = list(first)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            _show(address, statuses, in_json=in_json)
            time.sleep(interval)
            visit.go_to(cluster.nodes())
            statuses = take(visit, timeout, statuses)


def _show(address: str, statuses: Sequence[NodeStatus], *, in_json: bool) -> None:
    """Show a status in the place of the last one on a terminal, and else below it."""
    if in_json:
        click.echo(json.dumps(as_json(address, statuses)))
        return
    if sys.stdout.isatty():
        click.clear()
    print_lines(_lines(address, statuses))
    if not sys.stdout.isatty():
        click.echo()
    sys.stdout.flush()


def _lines(address: str, statuses: Sequence[NodeStatus]) -> Iterator[Any]:
    yield _title(address, statuses)
    yield ""
    rows: list[tuple[str, ...]] = []
    for each in statuses:
        rows += _rows(each)
    if rows:
        yield from aligned(_TITLES, rows)
    notes = [note for each in statuses for note in _notes(each)]
    if notes:
        yield ""
    yield from notes


def _title(address: str, statuses: Sequence[NodeStatus]) -> str:
    spools = [spool for each in statuses for spool in each.spools]
    rates = [each.rate for each in statuses if each.rate is not None]
    writers = sum(spool.figures.writers for spool in spools)
    recorded = f" {_number(sum(rates))} spans/s" if rates else ""
    delivered = sum(spool.figures.delivered for spool in spools)
    waiting = [
        max(spool.figures.destinations, key=lambda each: each.waiting) for spool in spools if spool.figures.destinations
    ]
    lost = sum(
        spool.figures.unwritten + max((each.refused + each.dropped for each in spool.figures.destinations), default=0)
        for spool in spools
    )
    return (
        f"Cluster {address}, {count(len(statuses), 'node')}: {count(writers, 'process', 'processes')} "
        f"record{'s' * (writers == 1)}{recorded}; {delivered:,} delivered, {_waiting(waiting)} waiting, {lost:,} lost"
        f"{_set(statuses)}"
    )


def _set(statuses: Sequence[NodeStatus]) -> str:
    """What is set for the cluster, if something is."""
    known = [each.control for each in statuses if each.control is not None]
    latest = max(known, default=None, key=lambda control: control["version"])
    if latest is None or (latest["enabled"] is None and not latest["variables"]):
        return ""
    state = {True: "tracing was switched on", False: "tracing was switched off", None: "settings were changed"}[
        latest["enabled"]
    ]
    names = f": {', '.join(latest['variables'])}" if latest["variables"] else ""
    return f"; {state}{until(latest['until'])} (version {latest['version']}){names}"


def _rows(status: NodeStatus) -> list[tuple[str, ...]]:
    """A row for each destination; the name of the node is on the first."""
    rows: list[tuple[str, ...]] = []
    for spool, rate in zip(status.spools, status.rates, strict=True):
        for number, each in enumerate(spool.figures.destinations):
            is_first = number == 0
            rows.append(
                (
                    status.node.name if not rows else "",
                    str(spool.figures.writers) if is_first else "",
                    "" if not is_first else _number(rate) if rate is not None else "?",
                    _address(each),
                    f"{each.delivered:,}",
                    _waiting([each]),
                    duration(each.age(time.time_ns()) * 1e9) if each.oldest_ns else "",
                    f"{each.refused + each.dropped:,}" if each.refused or each.dropped else "",
                    f"{each.retries:,}" if each.retries else "",
                )
            )
    if not rows and not status.error:
        rows.append((status.node.name, "0", "", "nothing is recorded", "", "", "", "", ""))
    return rows


def _notes(status: NodeStatus) -> Iterator[Line]:
    """What is wrong, below the table."""
    name = status.node.name
    if status.error:
        yield Line(f" {name}: {status.error}", {"fg": "red"})
    for spool in status.spools:
        waiting = sum(each.waiting for each in spool.figures.destinations)
        if not spool.runs and waiting:
            yield Line(f" {name}: no shipper runs for {spool.path}", {"fg": "red"})
        elif spool.is_stuck:
            yield Line(
                f" {name}: the shipper of {spool.path} (process {spool.figures.pid}) hangs: it delivers nothing",
                {"fg": "red"},
            )
        if spool.figures.unwritten:
            lost = count(spool.figures.unwritten, "span")
            yield Line(f" {name}: {lost} could not be written to {spool.path}, and are lost", {"fg": "red"})
        yield from (_error(name, spool, each) for each in spool.figures.destinations if each.error)


def _error(name: str, spool: SpoolFacts, each: DestinationFigures) -> Line:
    ago = duration(max(0, time.time_ns() - each.failed_ns))
    if each.is_failing and spool.runs:
        return Line(f" {name}: {each.error} (last tried {ago} ago)", {"fg": "red"})
    return Line(f" {name}: {each.error} ({ago} ago; no longer)", {"dim": True})


def _address(each: DestinationFigures) -> str:
    signal = "" if each.signal == "traces" else f" ({each.signal})"
    longest = max(20, min(_LONGEST_ADDRESS, screen_width(sys.stdout) - 70))
    return shortened(each.address or each.exporter, longest) + signal


def _waiting(destinations: Sequence[DestinationFigures]) -> str:
    about = "~" if any(each.is_estimate for each in destinations) else ""
    return f"{about}{sum(each.waiting for each in destinations):,}"


def _number(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 or number == round(number) else f"{number:.1f}"
