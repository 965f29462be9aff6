"""Whether test spans arrive, what has been delivered and lost so far, what waits, and whether folders have room."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from ray_tracing_hooks._insight.analysis.wording import count, duration, size
from ray_tracing_hooks._ops.diagnosis import GOOD, PROBLEM, WARNING, Diagnosis
from ray_tracing_hooks._ops.facts import Facts, Folder, Host, Spool, Trial
from ray_tracing_hooks._ops.spools import LOCAL, SPOOL
from ray_tracing_hooks._settings.otel import VARIABLES
from ray_tracing_hooks._settings.table import PREFIX, all_settings
from ray_tracing_hooks._ship.figures import DestinationFigures

_OF_PROXY = re.compile(r"\bHTTP 407\b|: the proxy (in|of) ")
_DENIED = re.compile(r"\b(401|403)\b|UNAUTHENTICATED|PERMISSION_DENIED|[Uu]nauthori[sz]ed|[Ff]orbidden")
_NOT_THERE = re.compile(r"\b(404|405)\b|UNIMPLEMENTED|NOT_FOUND")
_NO_CONNECTION = re.compile(r"connection refused|no connection|no process listens", re.IGNORECASE)
_OF_TLS = re.compile(r"\bTLS\b")
_LOCALHOST = re.compile(r"//(localhost|127\.|\[::1\])")

_UDP = "udp://"

_PROXY_ADVICE = (
    "correct the proxy variable (http_proxy, https_proxy or grpc_proxy); credentials are part of it, as in "
    "http://USER:PASSWORD@HOST:PORT; or name the host of the endpoint in no_proxy"
)

_HEADERS = {
    "otlp": "OTEL_EXPORTER_OTLP_HEADERS, such as authorization=Bearer%20TOKEN or x-api-key=KEY",
    "jaeger": "OTEL_EXPORTER_JAEGER_USER and OTEL_EXPORTER_JAEGER_PASSWORD",
    "skywalking": "RAY_TRACING_SKYWALKING_TOKEN",
}

_PROTOCOLS = {"otlp": "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "jaeger": "RAY_TRACING_JAEGER_PROTOCOL=otlp-http"}


def check(facts: Facts) -> Iterator[Diagnosis]:
    """Each destination of each host."""
    arrived: dict[str, list[Trial]] = {}
    unacknowledged: dict[str, int] = {}
    files: dict[str, int] = {}
    for host in facts.hosts:
        if host.examined is None:
            continue
        for trial in host.examined.trials:
            if trial.error is not None:
                failed = _failed(facts, host, trial)
                yield failed._replace(advice=failed.advice + host.examined.where_to_set(failed.advice))
                continue
            if trial.sent and _UDP in trial.text:
                unacknowledged[trial.text] = unacknowledged.get(trial.text, 0) + 1
            elif trial.sent:
                arrived.setdefault(trial.text, []).append(trial)
            elif trial.exporter == "local" and _takes_files(host) and not facts.unreachable:
                files[trial.text] = files.get(trial.text, 0) + (host.node is not None)
            for text in trial.warnings:
                yield Diagnosis(
                    "delivery-warning", WARNING, f"{trial.text}: {text}", (host.name,), "see the log of the collector"
                )
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


def _failed(facts: Facts, host: Host, trial: Trial) -> Diagnosis:
    found = _failure(facts, host, trial)
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


def _failure(facts: Facts, host: Host, trial: Trial) -> Diagnosis:
    where, error = (host.name,), str(trial.error)
    endpoint = _variable(trial.exporter, "ENDPOINT", "the variables of the exporter")
    if trial.is_setting:
        return Diagnosis(
            "exporter-unusable",
            PROBLEM,
            f"the exporter {trial.exporter!r} cannot be used: {error}",
            where,
            "correct what the message says",
        )
    if _OF_PROXY.search(error):
        what = f"spans do not arrive at {trial.text}: {error}" if trial.is_refused else f"spans do not arrive: {error}"
        return Diagnosis("proxy", PROBLEM, what, where, _PROXY_ADVICE)
    if trial.is_refused:
        return _refused(trial, where, error, endpoint)
    if "name cannot be resolved" in error:
        kind, advice = "endpoint-name", f"correct the host name in {endpoint}, or the DNS configuration of the node"
    elif _NO_CONNECTION.search(error):
        kind = "endpoint-connection"
        advice = (
            f"is the collector running, and is the port in {endpoint} right (4317 is OTLP over gRPC, 4318 over HTTP)? "
            "Do firewalls and network policies let the node through?"
        )
        if _LOCALHOST.search(trial.text) and len(facts.nodes) > 1:
            advice = (
                f"localhost is the node itself: name the host of the collector in {endpoint}, or run one on each node"
            )
    elif "its certificate" in error:
        certificate = _variable(trial.exporter, "CERTIFICATE", "the settings")
        kind, advice = (
            "endpoint-tls",
            f"name the CA certificate that signed it in {certificate}, or renew it",
        )
    elif _OF_TLS.search(error):
        kind, advice = "endpoint-tls", f"begin {endpoint} with https:// if the server has TLS, and else with http://"
    else:
        kind, advice = "endpoint-silent", f"see the log of the collector; {_protocol(trial, endpoint)}"
    return Diagnosis(kind, PROBLEM, f"spans do not arrive: {error}", where, advice)


def _refused(trial: Trial, where: tuple[str, ...], error: str, endpoint: str) -> Diagnosis:
    reason = error.rpartition(" lost: ")[2] or error
    if _OF_TLS.search(reason):
        kind, advice = "endpoint-tls", f"begin {endpoint} with https://"
    elif _DENIED.search(reason):
        kind = "endpoint-denied"
        advice = f"set the credentials in {_HEADERS.get(trial.exporter, 'the settings of the exporter')}"
    elif _NOT_THERE.search(reason):
        kind, advice = "endpoint-path", f"correct the path or the port in {endpoint}"
        protocol = _PROTOCOLS.get(trial.exporter)
        if protocol and "UNIMPLEMENTED" in reason:
            advice = (
                f"spans are sent by gRPC: name the port of OTLP over gRPC in {endpoint} (4317 by default), or set "
                f"{protocol} if that is a port of OTLP over HTTP (4318)"
            )
        elif trial.exporter == "otlp":
            advice += (
                ": OTLP over HTTP expects /v1/traces, which is appended to OTEL_EXPORTER_OTLP_ENDPOINT, but not "
                "to OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
            )
    else:
        kind, advice = "endpoint-refuses", "see the log of the collector"
    return Diagnosis(kind, PROBLEM, f"{trial.text} refuses spans: {reason}", where, advice)


def _protocol(trial: Trial, endpoint: str) -> str:
    if trial.exporter == "otlp":
        return (
            f"OTEL_EXPORTER_OTLP_PROTOCOL (grpc, http/protobuf) must fit the port in {endpoint}; if the server has "
            "TLS, begin the address with https://"
        )
    return f"the protocol must fit the port in {endpoint}"


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


def _of_spool(host: Host, spool: Spool) -> Iterator[Diagnosis]:
    where, figures = (host.name,), spool.figures
    waiting = sum(each.waiting for each in figures.destinations)
    if spool.error is not None:
        yield Diagnosis(
            "spool-unreadable",
            PROBLEM,
            f"a spool cannot be read: {spool.error}",
            where,
            "does it belong to another user? Run this as the user that runs Ray",
            (spool.path,),
        )
    elif not spool.runs and waiting:
        yield Diagnosis(
            "shipper-gone",
            PROBLEM,
            "spans wait, and no shipper delivers them",
            where,
            "a running process with these settings starts a shipper soon; if there is none, deliver them with "
            "`ray-tracing-hooks replay FOLDER` on that node",
            tuple(f"{spool.path}: {_waits(each)}" for each in figures.destinations if each.waiting),
        )
    elif spool.is_stuck:
        yield Diagnosis(
            "shipper-stuck",
            PROBLEM,
            "a shipper hangs: it delivers nothing",
            where,
            "see its process, and ray_tracing_hooks-*.log in the logs folder of the Ray session; if you kill it, "
            "another one takes over",
            (f"process {figures.pid}, {spool.path}",),
        )
    for each in figures.destinations:
        yield from _of_destination(host, spool, each)
    for text in figures.problems if spool.runs else ():
        if text not in {each.error for each in figures.destinations}:
            yield Diagnosis(
                "shipper-reports",
                WARNING,
                f"a shipper reports: {text}",
                where,
                "fix the reported problem; see ray_tracing_hooks-*.log in the logs folder of the Ray session",
            )
    if figures.unwritten:
        yield Diagnosis(
            "spans-unwritten",
            PROBLEM,
            "spans are lost: they could not be written to the spool, whose disk is full or fails",
            where,
            "make room, or set RAY_TRACING_SPOOL_DIR to another disk",
            (f"{spool.path}: {count(figures.unwritten, 'span')}",),
        )
    if figures.limit_bytes and figures.bytes > _FULL * figures.limit_bytes:
        yield Diagnosis(
            "spool-full",
            WARNING,
            "a spool is nearly full; at its limit, the oldest spans are dropped",
            where,
            "repair delivery, or raise RAY_TRACING_SPOOL_MAX_BYTES",
            (f"{spool.path}: {size(figures.bytes)} of {size(figures.limit_bytes)}",),
        )


def _of_destination(host: Host, spool: Spool, each: DestinationFigures) -> Iterator[Diagnosis]:
    where, to = (host.name,), each.address or each.exporter
    trials = host.examined.trials if host.examined is not None else ()
    failed_now = any(trial.text == to and trial.error is not None for trial in trials)
    if each.refused:
        yield Diagnosis(
            "spans-refused",
            PROBLEM,
            f"{to} has refused spans, which are lost",
            where,
            "see the reason in the delivery log, ray_tracing_hooks-*.log in the logs folder of the Ray session",
            (f"{count(each.refused, 'span')} since the shipper began",),
        )
    if each.dropped:
        yield Diagnosis(
            "spans-dropped",
            PROBLEM,
            f"spans for {to} were dropped, because the spool reached its limit",
            where,
            "repair delivery, or raise RAY_TRACING_SPOOL_MAX_BYTES",
            (f"{count(each.dropped, 'span')} since the shipper began",),
        )
    if not spool.runs or not each.waiting:
        return
    if each.is_failing and not failed_now:
        yield Diagnosis(
            "delivery-fails",
            PROBLEM,
            f"spans wait for {to}: {each.error}",
            where,
            "they are kept until the spool is full" + _remedy(spool, each),
            (_waits(each),),
        )
    elif not each.is_failing and each.age(time.time_ns()) > _LONG:
        yield Diagnosis(
            "delivery-slow",
            WARNING,
            f"spans have waited long for {to}",
            where,
            "is the destination slow, or the node overloaded? The shipper runs at low priority",
            (_waits(each),),
        )


def _remedy(spool: Spool, each: DestinationFigures) -> str:
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

_WHAT = {SPOOL: "the spool folder", LOCAL: "the folder of local files"}
_VARIABLES = {SPOOL: "RAY_TRACING_SPOOL_DIR", LOCAL: "RAY_TRACING_LOCAL_DIR"}


def check_folders(facts: Facts) -> Iterator[Diagnosis]:
    good = 0
    least: int | None = None
    for host in facts.hosts:
        for folder in host.examined.folders if host.examined is not None else ():
            finding = _of_folder(folder, (host.name,))
            if finding is not None:
                yield finding
            else:
                good += 1
                least = folder.free if least is None or (folder.free or 0) < least else least
    if good and least is not None:
        yield Diagnosis("disk", GOOD, f"folders for spans are writable, with {size(least)} free or more")


def _of_folder(folder: Folder, where: tuple[str, ...]) -> Diagnosis | None:
    what = _WHAT.get(folder.what, folder.what)
    variable = _VARIABLES.get(folder.what, "the folder")
    room = f"{folder.path}: {size(folder.free)} free" if folder.free is not None else folder.path
    if folder.is_full:
        return Diagnosis(
            "disk-full",
            PROBLEM,
            f"the disk of {what} is full",
            where,
            f"make room, or set {variable} to another disk",
            (folder.path,),
        )
    if folder.error is not None:
        return Diagnosis(
            "folder-unusable",
            PROBLEM,
            f"{what} cannot be used: {folder.error}",
            where,
            f"set {variable} to a folder of the user that runs Ray, in the environment of `ray start` and of drivers",
            (folder.path,),
        )
    if folder.free is not None and folder.free < _LITTLE:
        return Diagnosis(
            "disk-nearly-full",
            PROBLEM,
            f"the disk of {what} is nearly full",
            where,
            f"make room, or set {variable} to another disk",
            (room,),
        )
    if folder.free is not None and folder.free < max(_FEW, folder.limit):
        is_less = "less room than RAY_TRACING_SPOOL_MAX_BYTES" if folder.limit > folder.free else "little room"
        return Diagnosis(
            "disk-small",
            WARNING,
            f"the disk of {what} has {is_less}",
            where,
            f"lower RAY_TRACING_{'SPOOL' if folder.what == SPOOL else 'LOCAL'}_MAX_BYTES, make room, or set {variable}",
            (room,),
        )
    return None
