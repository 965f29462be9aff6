"""Instruments libraries (requests, httpx, redis, ...) with the instrumentation packages of OpenTelemetry and others.

An instrumentation is an entry point of the group ``opentelemetry_instrumentor``. ``opentelemetry-instrument`` enables
all of them, this module only those that are named. Their spans go to the global TracerProvider.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ray_tracing_hooks._safety import guard
from ray_tracing_hooks._safety.guard import describe
from ray_tracing_hooks._settings import otel

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_GROUP = "opentelemetry_instrumentor"
_VARIABLE = "RAY_TRACING_INSTRUMENT"
_DISABLED = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"
_ALL = "all"

_ours: dict[str, Any] = {}
"""The instrumentors that this module has enabled, by the value of their entry points."""


def instrument(
    names: Sequence[str], environ: Mapping[str, str], report: Callable[[str], None], *, setting: str = _VARIABLE
) -> list[str]:
    """Instrument the named libraries, or all installed ones for ``("all",)``; returns the names of the new ones.

    Libraries that are already instrumented are skipped, and so are those that ``OTEL_PYTHON_DISABLED_INSTRUMENTATIONS``
    names (``*``: all). ``report`` gets a sentence, which begins with the ``setting`` that asked for it, for each name
    that is not installed, each library that is missing or has an unsupported version, and each failure. With ``all``,
    missing libraries are skipped silently. Nothing is raised but KeyboardInterrupt and SystemExit. Without names,
    nothing is looked up.
    """
    if not names:
        return []
    from importlib.metadata import entry_points  # noqa: PLC0415  reads the metadata of all installed packages

    disabled = {_plain(name) for name in otel.read(_DISABLED, environ, report) or ()}
    if "*" in disabled:
        return []
    installed = list(entry_points(group=_GROUP))
    wants_all = _ALL in names
    return [
        entry_point.name
        for entry_point in (installed if wants_all else _chosen(names, installed, report, setting))
        if _plain(entry_point.name) not in disabled and _instrument(entry_point, report, setting, named=not wants_all)
    ]


def uninstrument(report: Callable[[str], None] = guard.report) -> None:
    """Undo :func:`instrument`, and leave instrumentations that others have enabled."""
    while _ours:
        value, instrumentor = _ours.popitem()
        try:
            if _is_on(instrumentor, otherwise=True):
                instrumentor.uninstrument()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  third-party code, which must not keep the rest from being undone
            report(f"{value} could not be uninstrumented: {describe(error)}")


def _chosen(
    names: Sequence[str], installed: Sequence[EntryPoint], report: Callable[[str], None], setting: str
) -> Iterable[EntryPoint]:
    for name in names:
        found = [entry_point for entry_point in installed if _plain(entry_point.name) == _plain(name)]
        if not found:
            report(f"{setting}: {_unknown(name, sorted({entry_point.name for entry_point in installed}))}")
        yield from found


def _plain(name: str) -> str:
    """The normalized name: packages use both ``aiohttp-client`` and ``grpc_client``."""
    return name.lower().replace("_", "-")


def _unknown(name: str, installed: Sequence[str]) -> str:
    import difflib  # noqa: PLC0415  only needed for an error message

    close = difflib.get_close_matches(name, installed, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return (
        f"no instrumentation {name!r} is installed; {hint}installed are {', '.join(installed) or 'none'}; "
        f"pip install opentelemetry-instrumentation-{_plain(name)} where the driver and the workers run"
    )


def _instrument(entry_point: EntryPoint, report: Callable[[str], None], setting: str, *, named: bool) -> bool:
    """Instrument one library; whether it is newly instrumented."""
    if entry_point.value in _ours and _is_on(_ours[entry_point.value], otherwise=True):
        return False
    refused = f"{setting}: {entry_point.name!r} is not instrumented"
    try:
        conflict = _conflict(entry_point)
        if conflict is not None:
            text, is_missing = conflict
            if named or not is_missing:
                report(f"{refused}: {text}")
            return False
        instrumentor = entry_point.load()()
        if _is_on(instrumentor, otherwise=False):
            return False
        instrumentor.instrument()
        if not _is_on(instrumentor, otherwise=True):
            report(f"{refused}: the instrumentation package does not support the installed library")
            return False
    except (KeyboardInterrupt, SystemExit):
        raise
    except ModuleNotFoundError as error:
        if named:
            report(f"{refused}: {describe(error)}")
        return False
    except BaseException as error:  # noqa: BLE001  third-party code: a failure must not stop the next one
        report(f"{refused}: {describe(error)}")
        return False
    _ours[entry_point.value] = instrumentor
    return True


def _is_on(instrumentor: Any, *, otherwise: bool) -> bool:
    """Whether it is enabled; ``otherwise`` for one without that attribute, which all of OpenTelemetry's have."""
    return bool(getattr(instrumentor, "is_instrumented_by_opentelemetry", otherwise))


def _conflict(entry_point: EntryPoint) -> tuple[str, bool] | None:
    """Why the library is not supported, and whether that is because it is not installed. None if it is supported.

    This is the instrumentation package's own check, made before its modules import the library. It is not documented:
    where it is missing or works differently, ``instrument()`` makes the same check and logs the result.
    """
    if entry_point.dist is None:
        return None
    try:
        from opentelemetry.instrumentation.dependencies import get_dist_dependency_conflicts  # noqa: PLC0415

        conflict = get_dist_dependency_conflicts(entry_point.dist)
        if conflict is None:
            return None
        found = getattr(conflict, "found", None) or ", ".join(getattr(conflict, "found_any", None) or ())
        required = [conflict.required] if conflict.required else getattr(conflict, "required_any", None) or ()
    except Exception:  # noqa: BLE001  it is undocumented, see above
        return None
    # A requirement carries the name of its extra.
    needed = " or ".join(str(requirement).partition(";")[0].strip() for requirement in required)
    if found:
        return f"it needs {needed}, but {found} is installed", False
    return f"it needs {needed}, which is not installed", True
