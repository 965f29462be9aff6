"""Instrumentation of further libraries, by OpenTelemetry's own instrumentation packages.

They are found by their ``opentelemetry_instrumentor`` entry points, and make their spans with the global
TracerProvider. Each is on its own: one that fails takes nothing else with it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ray_tracing_hooks._guard import describe

_GROUP = "opentelemetry_instrumentor"
_ALL = "all"
_VARIABLE = "RAY_TRACING_INSTRUMENT"

_instrumented: dict[str, Any] = {}
"""By name, what has been instrumented here and is to be taken back."""


def instrument(names: Sequence[str], environ: Mapping[str, str], report: Callable[[str], None]) -> None:
    """Instrument the libraries of these names, or with ``all`` every one that there is an instrumentation for.

    What ``OTEL_PYTHON_DISABLED_INSTRUMENTATIONS`` names is left alone, and so is what is instrumented already. With
    ``all``, libraries that are not installed are passed over silently.
    """
    if not names:
        return
    installed = {point.name: point for point in entry_points(group=_GROUP)}
    disabled = {name.strip() for name in environ.get("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "").split(",")}
    if "*" in disabled:
        return
    everything = _ALL in names
    for name in installed if everything else names:
        if name in disabled or name in _instrumented:
            continue
        if name in installed:
            _instrument(installed[name], report, asked_for=name in names)
        else:
            report(_unknown(name, installed))


def uninstrument() -> None:
    """Take back what :func:`instrument` did. Never raises."""
    while _instrumented:
        _, instrumentor = _instrumented.popitem()
        try:
            instrumentor.uninstrument()
        except Exception:  # noqa: BLE001  what cannot be taken back stays
            continue


def _instrument(point: EntryPoint, report: Callable[[str], None], *, asked_for: bool) -> None:
    failed = f"{_VARIABLE}: {point.name!r} is not instrumented: "
    try:
        instrumentor = point.load()()
        if instrumentor.is_instrumented_by_opentelemetry:
            return
        instrumentor.instrument(skip_dep_check=False, raise_exception_on_conflict=True)
    except (KeyboardInterrupt, SystemExit):
        raise
    except ModuleNotFoundError as error:
        if asked_for:
            report(f"{failed}the module {error.name!r} is not installed; pip install it where the workers run")
    except BaseException as error:  # noqa: BLE001  some raise what is no Exception, and the process is the user's
        conflict = getattr(error, "conflict", None)
        if conflict is None:
            report(f"{failed}{describe(error)}")
        elif asked_for or getattr(conflict, "found", None) or getattr(conflict, "found_any", None):
            report(f"{failed}{conflict}")
    else:
        if instrumentor.is_instrumented_by_opentelemetry:
            _instrumented[point.name] = instrumentor
        elif asked_for:
            # Older packages log the reason, and do not raise.
            report(f"{failed}its package does not fit the library that is installed")


def _unknown(name: str, installed: Mapping[str, EntryPoint]) -> str:
    package = f"opentelemetry-instrumentation-{name.replace('_', '-')}"
    close = difflib.get_close_matches(name, installed, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return (
        f"{_VARIABLE}: there is no instrumentation {name!r}; {hint}installed are "
        f"{', '.join(sorted(installed)) or 'none'}; pip install {package} where the driver and the workers run"
    )
