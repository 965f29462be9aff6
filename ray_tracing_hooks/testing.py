"""Capture the spans of a block of code, for use in tests.

    import ray
    from ray_tracing_hooks.testing import capture

    ray.init(_tracing_startup_hook="ray_tracing_hooks.local:setup")

    def test_double():
        with capture() as captured:
            assert ray.get(double.remote(21)) == 42
        assert captured.tree().splitlines() == [
            "module.double ray.remote",
            "  module.double ray.remote_worker",
        ]

The hook must write local files, alone or beside other exporters. Spans from other machines are not captured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from opentelemetry import trace

from ray_tracing_hooks import _startup, names
from ray_tracing_hooks._insight.model.span import Event, Link, Span
from ray_tracing_hooks._safety.guard import TracingError

__all__ = ["Captured", "Event", "Link", "Node", "Span", "capture"]

_POLL_SECONDS = 0.02


@dataclass
class Node:
    """A span and its children, in the order in which they started."""

    span: Span
    children: list[Node] = field(default_factory=list)


@dataclass
class Captured:
    """The spans of a block, available once the block has ended."""

    roots: list[Node] = field(default_factory=list)
    """The spans that the block started directly, by start time, with their descendants."""

    @property
    def spans(self) -> list[Span]:
        """All spans, parents before their children."""
        return [node.span for _, node in self._nodes()]

    def named(self, name: str) -> list[Span]:
        """The spans with this name."""
        return [span for span in self.spans if span.name == name]

    def tree(self) -> str:
        """The names of the spans, one per line, indented by two spaces below their parents.

        Siblings are in the order in which they started. A failed span has `` ERROR`` and its ``error.type`` after its
        name; a span that is still running has `` RUNNING``.
        """
        return "\n".join("  " * depth + node.span.name + _how_it_ended(node.span) for depth, node in self._nodes())

    def _nodes(self) -> Iterator[tuple[int, Node]]:
        """All nodes with their depths, parents before their children."""
        pending = [(0, node) for node in reversed(self.roots)]
        while pending:
            depth, node = pending.pop()
            yield depth, node
            pending += [(depth + 1, child) for child in reversed(node.children)]


@contextmanager
def capture(timeout: float = 10.0) -> Iterator[Captured]:
    """Capture the spans of the ``with`` block, in this process and in the tasks and actors that it calls.

    They are available when the block has ended. At its end, the block waits for spans that are still running, for at
    most ``timeout`` seconds. If the block has not waited for the result of a call, the call may not have started by
    then.

    Raises:
        TracingError: This process is not traced, does not write local files, or the block is not sampled.
    """
    folders = _folders()
    captured = Captured()
    with trace.get_tracer(__name__).start_as_current_span("capture") as span:
        context = span.get_span_context()
        if not context.trace_flags.sampled:
            raise TracingError("nothing can be captured: this trace is not sampled")
        yield captured
    trace_id, span_id = f"{context.trace_id:032x}", f"{context.span_id:016x}"
    until = time.monotonic() + timeout
    while True:
        captured.roots = _below(span_id, _read(folders, trace_id))
        if all(found.state != "running" for found in captured.spans) or time.monotonic() > until:
            return
        time.sleep(_POLL_SECONDS)


def _folders() -> tuple[str, str]:
    """The folders with spans: the spool, and the local files, to which the spool is delivered."""
    folders = _startup.folders()
    if folders is None:
        raise TracingError(
            "nothing can be captured: this process is not traced; connect to Ray with "
            'ray.init(_tracing_startup_hook="ray_tracing_hooks.local:setup") first'
        )
    spool, local = folders
    if local is None:
        raise TracingError(
            "nothing can be captured: this process writes no local files; use the hook ray_tracing_hooks.local:setup, "
            "or name local among RAY_TRACING_EXPORTERS"
        )
    return spool, local


def _read(folders: tuple[str, str], trace_id: str) -> list[Span]:
    """The spans of a trace. A span delivered while the spool is read is in the local files when they are read."""
    # Not at the top: only tests that look at spans need the JSON decoder.
    from ray_tracing_hooks._insight.ingest.files import span_files  # noqa: PLC0415
    from ray_tracing_hooks._insight.ingest.load import read  # noqa: PLC0415

    found: dict[str, Span] = {}
    for folder in folders:
        if not os.path.isdir(folder):
            continue
        for span in read(span_files([folder]))[0]:
            if span.trace_id == trace_id and (span.end_ns or span.span_id not in found):
                found[span.span_id] = span
    return list(found.values())


def _below(span_id: str, spans: list[Span]) -> list[Node]:
    nodes = {span.span_id: Node(span) for span in sorted(spans, key=lambda span: (span.start_ns, span.span_id))}
    roots: list[Node] = []
    for node in nodes.values():
        parent = nodes.get(node.span.parent_id)
        siblings = roots if node.span.parent_id == span_id else parent.children if parent is not None else []
        siblings.append(node)
    return roots


def _how_it_ended(span: Span) -> str:
    if span.state == "running":
        return " RUNNING"
    return f" ERROR {span.attributes.get(names.ERROR_TYPE, '')}".rstrip() if span.failed else ""
