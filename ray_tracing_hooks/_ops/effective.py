"""The settings that an environment results in, with everything that is wrong with them."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ray_tracing_hooks import _standard
from ray_tracing_hooks._connection.delivery import sending
from ray_tracing_hooks._settings import Settings, load_with_sources
from ray_tracing_hooks._ship.destinations import configured
from ray_tracing_hooks._ship.environment import with_settings
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.sink import Destination
from ray_tracing_hooks._standard import JAEGER, OTLP, VARIABLES
from ray_tracing_hooks._values import MASK


class Effective(NamedTuple):
    """The settings of a process.

    Attributes:
        settings: Their values.
        sources: Where each value comes from: a variable, the path of a file, or ``default``.
        environ: The variables that configure delivery.
        plan: The plan of delivery.
        destinations: Where spans go. Nothing is created or tried.
        problems: What is wrong, as sentences without credentials.
    """

    settings: Settings
    sources: dict[str, str]
    environ: dict[str, str]
    plan: ShipPlan
    destinations: list[Destination]
    problems: list[str]


def effective(
    environ: Mapping[str, str],
    exporters: tuple[str, ...] | None = None,
    directory: Callable[[], str] = os.getcwd,
) -> Effective:
    """The settings of a process with this environment.

    ``exporters`` are those of its hook, None for those of the settings. Relative paths are relative to ``directory``.
    """
    problems: list[str] = []
    settings, sources = load_with_sources(environ, problems.append, directory)
    _standard.check(environ, problems.append, leaving_out=())
    variables = with_settings(environ, settings, directory)
    exporters = sending(settings, exporters)
    plan = ShipPlan.of(settings, exporters, variables, metrics=settings.metrics and bool(exporters))
    # As delivery reads them: some settings are right alone, and wrong together.
    destinations, wrong = configured(plan, variables)
    problems += wrong
    found = [_without_credentials(problem) for problem in dict.fromkeys(problems)]
    return Effective(settings, sources, variables, plan, destinations, found)


def _without_credentials(problem: str) -> str:
    """A message about an invalid value, with everything before an ``@`` in the value masked."""
    return re.sub(r"=(['\"])([^/@?]*://)?.*@", rf"=\1\2{MASK}@", problem)


_FAMILIES = (OTLP, JAEGER, "OTEL_TRACES_", "OTEL_BSP_", "OTEL_SERVICE_", "OTEL_RESOURCE_", "OTEL_PROPAG", "OTEL_SDK_")
_SIGNALS = ("TRACES", "METRICS", "LOGS", "PROFILES")

_ALSO_KNOWN = {
    "OTEL_TRACES_EXPORTER",
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
    "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
    "OTEL_EXPORTER_JAEGER_AGENT_SPLIT_OVERSIZED_BATCHES",
    "OTEL_EXPORTER_JAEGER_PROTOCOL",
    "OTEL_EXPORTER_JAEGER_GRPC_INSECURE",
    "OTEL_BSP_MAX_QUEUE_SIZE",
}
"""Standard variables that this package does not read, in the families where it looks for misspelled ones."""

_SIMILAR = 0.85


def misspelled(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Variables that nothing reads, each with the one that it resembles.

    Only in families of variables that this package reads: others may belong to other packages.
    """
    known = {row.name for row in VARIABLES} | _ALSO_KNOWN
    known |= {f"{OTLP}{signal}_{name.removeprefix(OTLP)}" for name in known for signal in _SIGNALS if OTLP in name}
    for name in environ:
        upper = name.upper()
        if name not in known and upper.startswith(("OTEL_", "OTLP_")) and environ[name].strip():
            close = difflib.get_close_matches(upper, known, n=1, cutoff=_SIMILAR)
            if close and close[0].startswith(_FAMILIES):
                yield name, close[0]
