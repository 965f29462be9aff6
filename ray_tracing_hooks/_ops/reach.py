"""Delivers a test span to each destination of a node, through the same sinks and transports as any other span."""

from __future__ import annotations

import concurrent.futures
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ops.effective import Effective
from ray_tracing_hooks._safety.guard import SettingError, TracingError, describe
from ray_tracing_hooks._ship.log import Secrets, with_count
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.registry import destination_of, make_sink, usable
from ray_tracing_hooks._ship.sink import Batch, DeliveryError, Destination, RefusesAllError, SinkContext
from ray_tracing_hooks._version import __version__

NAME = "ray-tracing-hooks doctor"
"""The name of test spans, and of their service: they are not among those of any program."""

_INTERNAL = 1
"""The kind of the span, by OTLP's number."""

_WRITES_FILES = frozenset({"local", "console"})
"""Exporters that get no test span, which would stay in the user's files. Their folder is checked."""


@dataclass
class _Heard:
    """What a sink reports."""

    problems: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def count(self, text: str, number: int) -> None:
        self.problems.append(with_count(text, number))

    def lose(self, text: str, number: int) -> None:
        if number:
            self.lost.append(with_count(text, number))


def trial(found: Effective, trace_id: str | None, timeout: float, secrets: Secrets) -> list[dict[str, Any]]:
    """What becomes of a test span at each destination of these settings. Without a trace id none is sent.

    Destinations are tried at the same time, each for at most the time-out of its requests, or ``timeout`` seconds.
    """
    exporters, _ = usable(found.plan.exporters)
    environ = _hurried(found.environ, timeout)
    try_one = partial(_try, found.plan, environ, trace_id, secrets)
    threads = concurrent.futures.ThreadPoolExecutor(max(1, len(exporters)))
    tried = [(name, threads.submit(try_one, name)) for name in exporters]
    until = time.monotonic() + timeout
    results: list[dict[str, Any]] = []
    for name, each in tried:
        try:
            results.append(each.result(max(0.1, until - time.monotonic())))
        except concurrent.futures.TimeoutError:  # an installed exporter may take any time
            text = secrets.mask(_destination(name, found.plan, environ).text)
            results.append({"exporter": name, "text": text, "sent": True, "error": f"no result within {timeout:g} s"})
    threads.shutdown(wait=False)
    return results


def _hurried(environ: dict[str, str], timeout: float) -> dict[str, str]:
    """The variables of delivery, with requests that take no longer than ``timeout`` seconds."""
    given = environ.get("OTEL_BSP_EXPORT_TIMEOUT", "")
    least = min(float(given), timeout * 1000) if given.isdigit() and int(given) else timeout * 1000
    return {**environ, "OTEL_BSP_EXPORT_TIMEOUT": str(max(1, int(least)))}


def _try(plan: ShipPlan, environ: dict[str, str], trace_id: str | None, secrets: Secrets, name: str) -> dict[str, Any]:
    heard = _Heard()
    destination = _destination(name, plan, environ)
    found: dict[str, Any] = {"exporter": name, "text": secrets.mask(destination.text), "sent": False, "error": None}
    if name in _WRITES_FILES or trace_id is None:
        return found
    began = time.monotonic()
    found["sent"] = True
    try:
        _deliver(plan, environ, name, heard, _batch(bytes.fromhex(trace_id)))
    except RefusesAllError as error:
        found |= {"error": error.reason, "is_refused": True}
    except TracingError as error:
        found["error"] = str(error)
        found["is_setting"] = isinstance(error, SettingError)
        found["is_refused"] = False
    except Exception as error:  # noqa: BLE001  installed exporters raise whatever they like
        found["error"] = describe(error)
    else:
        if heard.lost:
            found |= {"error": heard.lost[0], "is_refused": True}
    found["seconds"] = time.monotonic() - began
    found["warnings"] = [secrets.mask(text) for text in heard.problems]
    if found["error"] is not None:
        found["error"] = secrets.mask(found["error"])
    return found


def _destination(name: str, plan: ShipPlan, environ: dict[str, str]) -> Destination:
    return destination_of(name, plan, environ, lambda _problem: None)


def _deliver(plan: ShipPlan, environ: dict[str, str], name: str, heard: _Heard, batches: Sequence[Batch]) -> None:
    # What the settings have wrong has been reported.
    context = SinkContext(
        plan,
        {},
        lambda _state: None,
        heard.count,
        environ,
        lambda _problem: None,
        lost=heard.lose,
    )
    sink = make_sink(name, context)
    try:
        for _ in range(2):
            try:
                sink.deliver(batches)
            except DeliveryError:
                # An installed exporter wants another attempt to tell a bad span from a bad server.
                if not sink.needs_more_to_judge:
                    raise
            else:
                return
        sink.deliver(batches)
    finally:
        sink.close()


def _batch(trace_id: bytes) -> list[Batch]:
    now = time.time_ns()
    span = (
        encode.identity_of(trace_id, os.urandom(8), None)
        + encode.start_and_end(now - 1_000_000, encode.END_TAG, now)
        + encode.name_and_kind(NAME, _INTERNAL)
        + encode.attributes({"host.name": socket.gethostname()})
    )
    resource = encode.resource(
        {
            "service.name": NAME.replace(" ", "-"),
            "host.name": socket.gethostname(),
            names.DISTRO_NAME: "ray_tracing_hooks",
            names.DISTRO_VERSION: __version__,
        }
    )
    return [Batch(resource, encode.scope(names.SCOPE, __version__), [span])]
