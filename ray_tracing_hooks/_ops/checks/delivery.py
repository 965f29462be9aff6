"""Whether test spans arrive, what has been delivered and lost so far, what waits, and whether folders have room."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from ray_tracing_hooks._insight.analysis.wording import count, duration, size
from ray_tracing_hooks._ops.checks.messages import finding
from ray_tracing_hooks._ops.diagnosis import GOOD, Diagnosis
from ray_tracing_hooks._ops.facts import DeliveryTrial, Facts, FolderFacts, Host, SpoolFacts
from ray_tracing_hooks._ops.spools import LOCAL, SPOOL
from ray_tracing_hooks._settings.otel import VARIABLES
from ray_tracing_hooks._settings.table import PREFIX, all_settings
from ray_tracing_hooks._ship.figures import DestinationFigures

_OF_PROXY = re.compile(r"\bHTTP 407\b|: the proxy (in|of) ")
_DENIED = re.compile(r"\b(401|403)\b|UNAUTHENTICATED|PERMISSION_DENIED|[Uu]nauthori[sz]ed|[Ff]orbidden")
_NOT_THERE = re.compile(r"\b(404|405)\b|UNIMPLEMENTED|NOT_FOUND")
_NO_CONNECTION = re.compile(r"connection refused|no connection|no process listens", re.IGNORECASE)
_OF_TLS = re.compile(r"\bTLS\b|its certificate")

_UDP = "udp://"

_HEADERS = {
    "otlp": "OTEL_EXPORTER_OTLP_HEADERS, such as authorization=Bearer%20TOKEN or x-api-key=KEY",
    "jaeger": "OTEL_EXPORTER_JAEGER_USER and OTEL_EXPORTER_JAEGER_PASSWORD",
    "skywalking": "RAY_TRACING_SKYWALKING_TOKEN",
}

_OF_GRPC = "; spans are sent by gRPC, whose port is 4317 by default: for a port of OTLP over HTTP (4318), set "
_HINTS = {
    "otlp": {
        True: f"{_OF_GRPC}OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
        False: ": OTLP over HTTP expects /v1/traces, which is appended to OTEL_EXPORTER_OTLP_ENDPOINT, but not to "
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    },
    "jaeger": {True: f"{_OF_GRPC}RAY_TRACING_JAEGER_PROTOCOL=otlp-http"},
}
"""How the advice on a wrong path or port goes on, by exporter, and by whether the method is unknown, as gRPC says."""

_PORTS = " (4317 is OTLP over gRPC, 4318 over HTTP)"


def check(facts: Facts) -> Iterator[Diagnosis]:
    """Each destination of each host."""
    arrived: dict[str, list[DeliveryTrial]] = {}
    unacknowledged: dict[str, int] = {}
    files: dict[str, int] = {}
    for host in facts.hosts:
        if host.examined is None:
            continue
        for trial in host.examined.trials:
            if trial.error is not None:
                failed = _failed(host, trial)
                yield failed._replace(advice=failed.advice + host.examined.where_to_set(failed.advice))
                continue
            if trial.sent and _UDP in trial.text:
                unacknowledged[trial.text] = unacknowledged.get(trial.text, 0) + 1
            elif trial.sent:
                arrived.setdefault(trial.text, []).append(trial)
            elif trial.exporter == "local" and _takes_files(host) and not facts.unreachable:
                files[trial.text] = files.get(trial.text, 0) + (host.node is not None)
            for text in trial.warnings:
                yield finding("delivery-warning", host.name, to=trial.text, text=text)
    for text, trials in arrived.items():
        times = sorted(trial.seconds * 1e9 for trial in trials)
        spread = duration(times[0]) if len(times) == 1 else f"{duration(times[0])} to {duration(times[-1])}"
        accepted = f"{len(trials)} test spans were accepted," if len(trials) > 1 else "a test span was accepted"
        yield Diagnosis("delivery", GOOD, f"{text}: {accepted} in {spread}")
    for text, number in unacknowledged.items():
        sent = f"{count(number, 'test span')} {'was' if number == 1 else 'were'} sent"
        yield Diagnosis("delivery", GOOD, f"{text}: {sent}; UDP has no answer, so nobody knows whether they arrived")
    for text, nodes in files.items():
        each = " of each node; `ray-tracing-hooks collect` fetches them" if nodes > 1 else ""
        yield Diagnosis("delivery", GOOD, f"spans are written to {text}{each}")


def _takes_files(host: Host) -> bool:
    folders = host.examined.folders if host.examined is not None else ()
    return not any(folder.what == LOCAL and (folder.is_full or folder.error is not None) for folder in folders)


def _failed(host: Host, trial: DeliveryTrial) -> Diagnosis:
    found = _failure(host, trial)
    source = _source(host, trial.exporter)
    return found._replace(advice=f"{found.advice}{source}") if found.id.startswith("endpoint") else found


def _variable(exporter: str, name: str, other: str) -> str:
    """The variable with this value of an exporter: ours, or else OpenTelemetry's; ``other`` if there is none."""
    known = {row.variable for row in all_settings()} | {row.name for row in VARIABLES}
    names = (f"{family}{exporter.upper()}_{name}" for family in (PREFIX, "OTEL_EXPORTER_"))
    return next((each for each in names if each in known), other)


def _source(host: Host, exporter: str) -> str:
    """Where the address of this exporter is set, if not by the variable that advice names."""
    variable = _variable(exporter, "ENDPOINT", "")
    if host.examined is None or variable not in host.examined.settings:
        return ""
    _, source = host.examined.settings[variable]
    return "" if source == variable else f". It is set by {source}"


def _failure(host: Host, trial: DeliveryTrial) -> Diagnosis:
    error, hint = str(trial.error), ""
    if trial.is_refused:
        error = error.rpartition(" lost: ")[2] or error
    if trial.is_setting:
        kind = "exporter-unusable"
    elif _OF_PROXY.search(error):
        kind = "proxy"
    elif "name cannot be resolved" in error:
        kind = "endpoint-name"
    elif _NO_CONNECTION.search(error):
        kind = "endpoint-connection"
        hint = _PORTS if trial.exporter in _HINTS else ""
    elif _OF_TLS.search(error):
        kind = "endpoint-tls"
    elif not trial.is_refused:
        kind = "endpoint-silent"
    elif _DENIED.search(error):
        kind = "endpoint-denied"
    elif _NOT_THERE.search(error):
        kind = "endpoint-path"
        hint = _HINTS.get(trial.exporter, {}).get("UNIMPLEMENTED" in error, "")
    else:
        kind = "endpoint-refuses"
    return finding(
        kind,
        host.name,
        error=error,
        exporter=trial.exporter,
        to=trial.text,
        endpoint=_variable(trial.exporter, "ENDPOINT", "the variables of the exporter"),
        certificate=_variable(trial.exporter, "CERTIFICATE", "the settings"),
        headers=_HEADERS.get(trial.exporter, "the settings of the exporter"),
        hint=hint,
    )


_LONG = 60.0
"""The age in seconds from which waiting spans are a warning."""

_FULL = 0.8


def check_spools(facts: Facts) -> Iterator[Diagnosis]:
    """Each spool of each host. Spools of nodes on this machine are not looked at a second time."""
    seen: set[tuple[str, str]] = set()
    shippers = delivered = waiting = 0
    for host in facts.hosts:
        for spool in host.examined.spools if host.examined is not None else ():
            if host.node is None and any(path == spool.path for _, path in seen):
                continue
            seen.add((host.name, spool.path))
            yield from _of_spool(host, spool)
            shippers += spool.runs
            delivered += sum(each.delivered for each in spool.figures.destinations)
            waiting += sum(each.waiting for each in spool.figures.destinations)
    if shippers:
        many = f"{count(shippers, 'shipper')} run{'s' * (shippers == 1)}"
        yield Diagnosis("shippers", GOOD, f"{many}: {count(delivered, 'span')} delivered so far, {waiting:,} waiting")


def _of_spool(host: Host, spool: SpoolFacts) -> Iterator[Diagnosis]:
    here, figures = host.name, spool.figures
    waiting = [f"{spool.path}: {_waits(each)}" for each in figures.destinations if each.waiting]
    if spool.error is not None:
        yield finding("spool-unreadable", here, spool.path, error=spool.error)
    elif not spool.runs and waiting:
        yield finding("shipper-gone", here, *waiting)
    elif spool.is_stuck:
        yield finding("shipper-stuck", here, f"process {figures.pid}, {spool.path}")
    for each in figures.destinations:
        yield from _of_destination(host, spool, each)
    for text in figures.problems if spool.runs else ():
        if text not in {each.error for each in figures.destinations}:
            yield finding("shipper-reports", here, text=text)
    if figures.unwritten:
        yield finding("spans-unwritten", here, f"{spool.path}: {count(figures.unwritten, 'span')}")
    if figures.limit_bytes and figures.bytes > _FULL * figures.limit_bytes:
        yield finding("spool-full", here, f"{spool.path}: {size(figures.bytes)} of {size(figures.limit_bytes)}")


def _of_destination(host: Host, spool: SpoolFacts, each: DestinationFigures) -> Iterator[Diagnosis]:
    here, to = host.name, each.address or each.exporter
    trials = host.examined.trials if host.examined is not None else ()
    failed_now = any(trial.text == to and trial.error is not None for trial in trials)
    for kind, number in (("spans-refused", each.refused), ("spans-dropped", each.dropped)):
        if number:
            yield finding(kind, here, f"{count(number, 'span')} since the shipper began", to=to)
    if not spool.runs or not each.waiting:
        return
    if each.is_failing and not failed_now:
        yield finding("delivery-fails", here, _waits(each), to=to, error=each.error, remedy=_remedy(spool, each))
    elif not each.is_failing and each.age(time.time_ns()) > _LONG:
        yield finding("delivery-slow", here, _waits(each), to=to)


def _remedy(spool: SpoolFacts, each: DestinationFigures) -> str:
    if each.exporter in spool.reached:
        return (
            "; see the log of the collector. If the settings are wrong, correct them with `ray-tracing-hooks "
            "configure`: these spans are then delivered too"
        )
    if each.exporter == "local":
        return ", and written once the folder can be used"
    return (
        "; see the log of the collector. Their processes have ended, so `ray-tracing-hooks configure` cannot change "
        "their destination: if it is wrong, send them with `ray-tracing-hooks replay` once Ray has ended"
    )


def _waits(each: DestinationFigures) -> str:
    about = "about " if each.is_estimate else ""
    since = f", the oldest for {duration(each.age(time.time_ns()) * 1e9)}" if each.oldest_ns else ""
    return f"{about}{count(each.waiting, 'span')} for {each.address or each.exporter}{since}"


_LITTLE, _FEW = 64 << 20, 1 << 30
"""Free bytes below which a disk is nearly full, and below which it may soon be."""


def check_folders(facts: Facts) -> Iterator[Diagnosis]:
    good = 0
    least: int | None = None
    for host in facts.hosts:
        for folder in host.examined.folders if host.examined is not None else ():
            found = _of_folder(folder, host.name)
            if found is not None:
                yield found
            else:
                good += 1
                least = folder.free if least is None or (folder.free or 0) < least else least
    if good and least is not None:
        yield Diagnosis("disk", GOOD, f"folders for spans are writable, with {size(least)} free or more")


def _of_folder(folder: FolderFacts, here: str) -> Diagnosis | None:
    what, name = ("the spool folder", "SPOOL") if folder.what == SPOOL else ("the folder of local files", "LOCAL")
    values = {"folder": what, "variable": f"RAY_TRACING_{name}_DIR"}
    if folder.is_full:
        return finding("disk-full", here, folder.path, **values)
    if folder.error is not None:
        return finding("folder-unusable", here, folder.path, error=folder.error, **values)
    if folder.free is None:
        return None
    room = f"{folder.path}: {size(folder.free)} free"
    if folder.free < _LITTLE:
        return finding("disk-nearly-full", here, room, **values)
    if folder.free < max(_FEW, folder.limit):
        little = "less room than RAY_TRACING_SPOOL_MAX_BYTES" if folder.limit > folder.free else "little room"
        return finding("disk-small", here, room, little=little, limit=f"RAY_TRACING_{name}_MAX_BYTES", **values)
    return None
