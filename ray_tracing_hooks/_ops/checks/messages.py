"""What the checks of ``doctor`` say: tables of problems and warnings. Words in braces are given where one is found."""

from __future__ import annotations

from typing import Any

from ray_tracing_hooks._ops.diagnosis import PROBLEM, WARNING, Diagnosis

_RESTART = "start the cluster with a hook, on its head: `{start}`; in KubeRay, set headGroupSpec.rayStartParams"
_DELIVERY_LOG = "ray_tracing_hooks-*.log in the logs folder of the Ray session"
_ROOM = "make room, or set {variable} to another disk"
_COLLECTOR = "see the log of the collector"
_INSTALL = "install version {version} in the environment of the workers, preferably in their image"
_CORRECT = (
    "correct it where you start Ray or the driver; `ray-tracing-hooks config` on the node shows all settings and their "
    "sources"
)

PROBLEMS = {
    "cluster-token": (
        "{why}",
        "set RAY_AUTH_MODE=token, with the token in RAY_AUTH_TOKEN or in ~/.ray/auth_token; drivers need both too",
    ),
    "cluster-unreachable": ("{why}", "{instead}"),
    "node-silent": (
        "{error} came",
        "is the node overloaded, cut off or suspended? See `ray status` and `top`, or wait longer with --timeout",
    ),
    "worker-died": (
        "workers end when they start",
        "see the error in worker-*.err and python-core-worker-*.log, in the logs folder of the Ray session",
    ),
    "node-failed": ("the node could not be asked: {error}", "see the error"),
    "node-unexamined": ("the node could not be examined: {error}", "run `ray-tracing-hooks doctor` on that node"),
    "clock": (
        "the clock is {apart} {direction}",
        "synchronize it, for example with chrony: spans of this node have wrong times, and back ends may refuse them",
    ),
    "package-missing": ("ray-tracing-hooks is not installed{ends}", _INSTALL),
    "package-broken": ("ray-tracing-hooks is installed, but cannot be imported{ends}", _INSTALL),
    "package-version": (
        "ray-tracing-hooks {found} is installed, and {version} here",
        "install one version everywhere, such as {version}",
    ),
    "ray-old": (
        "Ray {found} is older than 2.40, the oldest version that is tested",
        "use a newer Ray; the log of the driver names the parts that this version lacks, which are not traced",
    ),
    "hook-missing": (
        "the cluster was started without a tracing hook, so nothing is traced",
        f"{_RESTART}. A hook that a driver names in ray.init() has no effect on a running cluster",
    ),
    "hook-of-ray": ("the hook of the cluster is Ray's own ({hook}), which does not use this package", _RESTART),
    "hook-of-others": (
        "the hook of the cluster, {hook}, does not call a hook of this package",
        f"call `ray_tracing_hooks.setup()` in it, or {_RESTART}",
    ),
    "hook-fails": ("the hook {hook} does not work{then}", "{remedy}"),
    "worker-ends": (
        "every worker ends when it starts, and no task runs",
        "fix the reported problem, and restart Ray on the node; worker-*.err in the logs of its session has the error",
    ),
    "hook-without-effect": (
        "the hook is called, but does not trace the worker",
        "fix the problem that it reports; with RAY_TRACING_STRICT=1, it raises the error",
    ),
    "worker-reports": (
        "a worker reports a problem of tracing: {text}",
        "fix the reported problem; other findings may say more about the cause",
    ),
    "setting-wrong": ("{text}", _CORRECT),
    "switched-off": (
        "`ray-tracing-hooks disable` has switched tracing off",
        "`ray-tracing-hooks enable` switches it on again",
    ),
    "tracing-disabled": (
        "OTEL_SDK_DISABLED=true switches tracing off",
        "switch it on with `ray-tracing-hooks enable`, or unset it and restart Ray",
    ),
    "no-exporter": (
        "{name}=none: nothing is recorded",
        "set RAY_TRACING_EXPORTERS=local or otlp, or use a hook with an exporter, such as ray_tracing_hooks.otlp:setup",
    ),
    "not-sampled": (
        "no trace is sampled: OTEL_TRACES_SAMPLER={sampler}{kept}",
        "unset OTEL_TRACES_SAMPLER, or set a ratio above 0",
    ),
    "no-part-of-ray": (
        "RAY_TRACING_RAY=none: calls of Ray are not recorded",
        "unset it, or name parts, such as task,actor,job,serve",
    ),
    "exporter-unusable": ("the exporter {exporter!r} cannot be used: {error}", "correct what the message says"),
    "proxy": (
        "spans do not arrive at {to}: {error}",
        (
            "correct the proxy variable (http_proxy, https_proxy or grpc_proxy); credentials are part of it, as in "
            "http://USER:PASSWORD@HOST:PORT; or name the host of the endpoint in no_proxy"
        ),
    ),
    "endpoint-name": (
        "spans do not arrive: {error}",
        "correct the host name in {endpoint}, or the DNS configuration of the node",
    ),
    "endpoint-connection": (
        "spans do not arrive: {error}",
        (
            "is the collector running, and is the port in {endpoint} right{hint}? "
            "Do firewalls and network policies let the node through? localhost is the node itself"
        ),
    ),
    "endpoint-tls": (
        "spans do not arrive: {error}",
        "begin {endpoint} with http:// if it has no TLS, else with https://; name its CA certificate in {certificate}",
    ),
    "endpoint-silent": (
        "spans do not arrive: {error}",
        (
            "see the log of the collector; the protocol (for OTLP, OTEL_EXPORTER_OTLP_PROTOCOL) must fit the port in "
            "{endpoint}; if the server has TLS, begin the address with https://"
        ),
    ),
    "endpoint-denied": ("{to} refuses spans: {error}", "set the credentials in {headers}"),
    "endpoint-path": ("{to} refuses spans: {error}", "correct the path or the port in {endpoint}{hint}"),
    "endpoint-refuses": ("{to} refuses spans: {error}", _COLLECTOR),
    "disk-full": ("the disk of {folder} is full", _ROOM),
    "folder-unusable": (
        "{folder} cannot be used: {error}",
        "set {variable} to a folder of the user that runs Ray, in the environment of `ray start` and of drivers",
    ),
    "disk-nearly-full": ("the disk of {folder} is nearly full", _ROOM),
    "spool-unreadable": (
        "a spool cannot be read: {error}",
        "does it belong to another user? Run this as the user that runs Ray",
    ),
    "shipper-gone": (
        "spans wait, and no shipper delivers them",
        "a process with these settings starts one soon; else run `ray-tracing-hooks replay FOLDER` on that node",
    ),
    "shipper-stuck": (
        "a shipper hangs: it delivers nothing",
        f"see its process, and {_DELIVERY_LOG}; if you kill it, another one takes over",
    ),
    "spans-unwritten": (
        "spans are lost: they could not be written to the spool, whose disk is full or fails",
        "make room, or set RAY_TRACING_SPOOL_DIR to another disk",
    ),
    "spans-refused": ("{to} has refused spans, which are lost", f"see the reason in the delivery log, {_DELIVERY_LOG}"),
    "spans-dropped": (
        "spans for {to} were dropped, because the spool reached its limit",
        "repair delivery, or raise RAY_TRACING_SPOOL_MAX_BYTES",
    ),
    "delivery-fails": ("spans wait for {to}: {error}", "they are kept until the spool is full{remedy}"),
}
"""By id, which is stable: what is wrong, and what to do. A clock, and a sampler, may be only a warning."""

WARNINGS = {
    "no-cluster": (
        "{why}: only this machine was checked",
        "run this on a node of a cluster, or give its address, --address HOST:PORT",
    ),
    "node-gone": ("the node left the cluster during this check", "run this again"),
    "versions-differ": (
        "{name} differs between nodes: {found}",
        "use the same image, or the same requirements, on every node",
    ),
    "hook-late": (
        "the hook was set while the cluster was running: workers that had started before are not traced",
        "restart the cluster with the hook, or wait until these workers have ended",
    ),
    "setting-odd": ("{text}", _CORRECT),
    "variable-misspelled": ("nothing reads {wrong}", "did you mean {right}? Set that instead"),
    "strict": ("RAY_TRACING_STRICT=1: an error in tracing ends workers and programs", "unset it outside of tests"),
    "only-joins": (
        "RAY_TRACING_SKYWALKING_TRANSPORT=none: traces are joined by headers, and nothing is recorded",
        "to record spans, name another exporter in RAY_TRACING_EXPORTERS",
    ),
    "rarely-sampled": (
        "only {share:.3%} of traces are sampled (OTEL_TRACES_SAMPLER_ARG={ratio}), so a short test shows nothing",
        "raise OTEL_TRACES_SAMPLER_ARG for a test, or record spans that fail with RAY_TRACING_KEEP_ERRORS=1",
    ),
    "no-propagation": (
        "OTEL_PROPAGATORS=none: traces end where a request enters or leaves the cluster",
        "unset it, or set tracecontext,baggage",
    ),
    "endpoint-unused": (
        "{name} is set, but spans go to local files only",
        "to send them, use the hook ray_tracing_hooks.otlp:setup, or another one with RAY_TRACING_EXPORTERS=otlp",
    ),
    "settings-differ": (
        "settings differ between nodes",
        "set these variables to the same values on each node, where `ray start` runs",
    ),
    "settings-of-driver": (
        "a driver started from this shell has other settings than the cluster, so its spans may go elsewhere",
        "if you start drivers here, set the variables to the values of the cluster",
    ),
    "delivery-warning": ("{to}: {text}", _COLLECTOR),
    "disk-small": ("the disk of {folder} has {little}", "lower {limit}, make room, or set {variable}"),
    "shipper-reports": ("a shipper reports: {text}", f"fix the reported problem; see {_DELIVERY_LOG}"),
    "spool-full": (
        "a spool is nearly full; at its limit, the oldest spans are dropped",
        "repair delivery, or raise RAY_TRACING_SPOOL_MAX_BYTES",
    ),
    "delivery-slow": (
        "spans have waited long for {to}",
        "is the destination slow, or the node overloaded? The shipper runs at low priority",
    ),
}


def finding(id_: str, where: str = "", *details: str, **values: Any) -> Diagnosis:
    """What is wrong at a place, or with the cluster, with these words in place of those in braces."""
    what, advice = PROBLEMS.get(id_) or WARNINGS[id_]
    severity = PROBLEM if id_ in PROBLEMS else WARNING
    return Diagnosis(id_, severity, what.format(**values), (where,) if where else (), advice.format(**values), details)
