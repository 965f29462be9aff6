"""The settings that an environment results in, with everything that is wrong with them."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from opentelemetry import environment_variables as of_api
from opentelemetry.sdk import environment_variables as of_sdk

from ray_tracing_hooks._connection.delivery import is_disabled, sending, unmet
from ray_tracing_hooks._ops.diagnosis import PROBLEM, WARNING
from ray_tracing_hooks._settings import otel
from ray_tracing_hooks._settings.otel import JAEGER, OTLP, VARIABLES
from ray_tracing_hooks._settings.table import Settings, load_with_sources
from ray_tracing_hooks._settings.values import MASK, Hint
from ray_tracing_hooks._ship.plan import ShipPlan, with_settings
from ray_tracing_hooks._ship.registry import configured, usable


class Effective(NamedTuple):
    """The settings of a process, with the plan of delivery that it makes of them.

    Attributes:
        sources: Where each value comes from: a variable, the path of a file, or ``default``.
        environ: The variables that configure delivery.
        exporters: Those of the plan that there are, or what is used instead.
        problems: What is wrong, as sentences without credentials. Those of which :func:`severity` says that they are
            warnings are hints.
    """

    settings: Settings
    sources: dict[str, str]
    environ: dict[str, str]
    plan: ShipPlan
    exporters: tuple[str, ...]
    problems: list[str]

    def __repr__(self) -> str:
        # Without variables, which may be secrets.
        return f"Effective({self.settings}, {self.plan})"


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
    otel.check(environ, problems.append, leaving_out=())
    variables = with_settings(environ, settings, directory)
    exporters = () if is_disabled(environ) else sending(settings, exporters)
    plan = ShipPlan.of(settings, exporters, variables)
    # As delivery reads them: some settings are right alone, and wrong together.
    _, wrong = configured(plan, variables)
    problems += [*unmet(settings, exporters).values(), *wrong]
    found = [_without_credentials(problem) for problem in dict.fromkeys(problems)]
    return Effective(settings, sources, variables, plan, usable(exporters)[0], found)


def severity(problem: str) -> str:
    """How grave a problem of settings is: a warning where the setting is followed nevertheless."""
    return WARNING if isinstance(problem, Hint) else PROBLEM


def _without_credentials(problem: str) -> str:
    """A message about an invalid value, with everything before an ``@`` in the value masked."""
    return type(problem)(re.sub(r"=(['\"])([^/@?]*://)?.*@", rf"=\1\2{MASK}@", problem))


_FAMILIES = (OTLP, JAEGER, "OTEL_TRACES_", "OTEL_BSP_", "OTEL_SERVICE_", "OTEL_RESOURCE_", "OTEL_PROPAG", "OTEL_SDK_")
_SIGNALS = ("TRACES", "METRICS", "LOGS", "PROFILES")

_ALSO_KNOWN = {
    "OTEL_EXPORTER_JAEGER_AGENT_SPLIT_OVERSIZED_BATCHES",
    "OTEL_EXPORTER_JAEGER_PROTOCOL",
    "OTEL_EXPORTER_JAEGER_GRPC_INSECURE",
    "OTEL_EXPORTER_OTLP_SPAN_INSECURE",
    "OTEL_EXPORTER_OTLP_METRIC_INSECURE",
    "OTEL_PROFILES_EXPORTER",
}
"""Variables of the specification, and of exporters, that neither this package nor the SDK reads."""

_OF_OPERATOR = "OTEL_RESOURCE_ATTRIBUTES_"
"""How names of variables begin that the Kubernetes operator of OpenTelemetry adds to pods."""

_SIMILAR = 0.85


def misspelled(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Variables that nothing reads, each with the one that it resembles.

    Only in families of variables that this package reads: others may belong to other packages.
    """
    known = {row.name for row in VARIABLES} | _ALSO_KNOWN
    # What the SDK reads is no misspelling, whether or not this package reads it too.
    values = [value for module in (of_api, of_sdk) for value in vars(module).values()]
    known |= {value for value in values if isinstance(value, str) and value.startswith("OTEL_")}
    known |= {f"{OTLP}{signal}_{name.removeprefix(OTLP)}" for name in known for signal in _SIGNALS if OTLP in name}
    for name in environ:
        upper = name.upper()
        if name in known or upper.startswith(_OF_OPERATOR):
            continue
        if upper.startswith(("OTEL_", "OTLP_")) and environ[name].strip():
            close = difflib.get_close_matches(upper, known, n=1, cutoff=_SIMILAR)
            if close and close[0].startswith(_FAMILIES):
                yield name, close[0]
