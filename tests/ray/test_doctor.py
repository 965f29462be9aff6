"""``ray-tracing-hooks doctor`` on real clusters: it names what was planted, and invents nothing where all is well.

And ``status``, of a cluster where all is well.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import trustme
from collector import Received, collector
from conftest import Nodes, start_head, stop_head
from environments import with_version, without_package
from mounts import mounted
from plans import made_plan
from ports import free_port
from support import HELPERS, command, environment, python, spans_in

from ray_tracing_hooks._spool.writer import SpoolWriter
from ray_tracing_hooks._version import __version__

BY_SETTINGS = "--tracing-startup-hook=ray_tracing_hooks:setup"
TOKEN = "0123456789abcdef0123456789abcdef"  # of a cluster that lives for a minute
TRACES = "/v1/traces"
COMMAND = (sys.executable, "-m", "ray_tracing_hooks")

Finding = dict[str, Any]


class Healthy(NamedTuple):
    """A cluster where all is well, and the variables of its drivers."""

    address: str
    variables: dict[str, str]
    nodes: Nodes
    head: subprocess.Popen[bytes]

    def own(self) -> str:
        """The node that a driver here connects to: all three are on this host, and old versions of Ray take any."""
        program = (
            "import ray; ray.init(log_to_driver=False); own = ray.get_runtime_context().get_node_id(); "
            "print('RESULT', [node['NodeName'] for node in ray.nodes() if node['NodeID'] == own][0])"
        )
        # It leaves no span of its own, which other tests would see.
        done = python("-c", program, RAY_ADDRESS=self.address, OTEL_SDK_DISABLED="true", **self.variables)
        return done.stdout.rpartition("RESULT ")[2].strip()

    @contextlib.contextmanager
    def suspended(self, name: str) -> Iterator[None]:
        """The raylet of this node does nothing meanwhile."""
        node = {"head": self.head, **self.nodes.started}[name]
        (raylet,) = [
            process for process in psutil.Process(node.pid).children(recursive=True) if process.name() == "raylet"
        ]
        raylet.suspend()
        try:
            yield
        finally:
            raylet.resume()


def doctor(*arguments: str, **variables: str) -> tuple[int, dict[str, Any]]:
    """The exit code of the command, and its report."""
    done = run(*arguments, "--json", **variables)
    assert done.returncode in {0, 1}, done.stderr
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["healthy"] == (done.returncode == 0)
    assert not done.stderr, done.stderr
    return done.returncode, report


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return command("doctor", *arguments, **variables)


def found(report: dict[str, Any], *severities: str) -> dict[tuple[str, str], Finding]:
    """The findings of these severities, by their id and each of the places where they are."""
    return {
        (finding["id"], place): finding
        for finding in report["findings"]
        if finding["severity"] in severities
        for place in finding["where"] or [""]
    }


@pytest.fixture(scope="module")
def server() -> Iterator[Received]:
    with collector() as received:
        received.answers["/denied/v1/traces"] = 401
        received.answers["/nowhere"] = 404
        received.answers["/refusing/v1/traces"] = 400
        yield received


@pytest.fixture(scope="module")
def healthy(short_tmp: Callable[[], Path], server: Received) -> Iterator[Healthy]:
    """The address and the variables of a cluster of three nodes that asks for a token; spans go to two destinations."""
    folder = short_tmp()
    variables = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": TOKEN,
        "RAY_TRACING_EXPORTERS": "local,otlp",
        "RAY_TRACING_INTERNAL": "1",
        "RAY_TRACING_LOCAL_DIR": str(folder / "spans"),
        "OTEL_EXPORTER_OTLP_ENDPOINT": server.endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    }
    # A node that is suspended for a while counts as living.
    patient = {"RAY_health_check_period_ms": "600000"}
    head, address = start_head(folder, BY_SETTINGS, "--node-name=head", **patient, **variables)
    nodes = Nodes(address, folder)
    try:
        for name in ("second", "third"):
            nodes.start(name, **variables)
        yield Healthy(address, variables, nodes, head)
    finally:
        nodes.stop()
        stop_head(head)


def test_where_all_is_well_it_finds_nothing(healthy: Healthy, server: Received) -> None:
    """It looks at every node, sends test spans, and leaves none in the traces of programs."""
    address, variables, *_ = healthy
    began = time.monotonic()
    code, report = doctor("--address", address, **variables)
    print(f"{time.monotonic() - began:.1f} s")
    assert code == 0, report["findings"]
    assert not found(report, "problem", "warning"), report["findings"]
    good = {finding["id"]: finding["what"] for finding in report["findings"]}
    assert list(good) == ["nodes", "hook", "settings", "delivery", "disk", "shippers", "clocks"]
    assert good["nodes"].startswith("all 3 nodes answer: Ray ")
    assert good["hook"] == "ray_tracing_hooks:setup traces workers of all nodes"
    assert good["settings"] == "settings are valid, and the same everywhere"
    arrived = [finding["what"] for finding in report["findings"] if finding["id"] == "delivery"]
    assert arrived[0].startswith(f"OTLP {server.endpoint}{TRACES}: 4 test spans were accepted, in ")
    folder = variables["RAY_TRACING_LOCAL_DIR"]
    assert arrived[1] == f"spans are written to {folder} of each node; `ray-tracing-hooks collect` fetches them"
    assert [node["name"] for node in report["nodes"]] == ["head", "second", "third"]
    for node in report["nodes"]:
        assert node["answered"]
        assert node["package"] == __version__
        assert node["exporters"] == ["local", "otlp"]
        assert abs(node["clock_offset"]) < 5
        assert all(spool["shipper_runs"] for spool in node["spools"])
    assert (report["version"], report["hook"], report["here"]["id"]) == (1, "ray_tracing_hooks:setup", None)

    services = {resource["service.name"] for resource in server.resources}
    assert services == {"ray-tracing-hooks-doctor"}
    assert {span.name for span in server.spans} == {"ray-tracing-hooks doctor"}
    assert len({span.trace_id for span in server.spans}) == 1
    assert spans_in(Path(variables["RAY_TRACING_LOCAL_DIR"])) == [], "although internal actors of Ray would have spans"


def test_without_the_token_of_the_cluster_it_says_so(healthy: Healthy) -> None:
    address, variables, *_ = healthy
    without = {name: value for name, value in variables.items() if not name.startswith("RAY_AUTH")}
    code, report = doctor("--address", address, "--no-test-span", **without, HOME="/nonexistent")
    if code == 0:
        pytest.skip("this Ray has no tokens")
    (finding,) = found(report, "problem").values()
    assert finding["id"] == "cluster-token"
    assert "requires the token" in finding["what"]
    assert "RAY_AUTH_TOKEN" in finding["advice"]


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with a certificate that nobody trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_request: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"https://localhost:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def full_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder on a disk without room."""
    with mounted(tmp_path_factory.mktemp("full"), "size=64k,mode=700") as folder:
        (folder / "spool").mkdir(mode=0o700)
        with contextlib.suppress(OSError), open(folder / "filler", "wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        yield folder / "spool"


@pytest.fixture(scope="module")
def planted(
    short_tmp: Callable[[], Path],
    tmp_path_factory: pytest.TempPathFactory,
    server: Received,
    certified: str,
    full_disk: Path,
) -> Iterator[dict[str, Any]]:
    """The report on a cluster whose nodes are all wrong, each in several ways."""
    folder = short_tmp()
    own = tmp_path_factory.mktemp("own")
    own_spans = {"RAY_TRACING_LOCAL_DIR": str(own)}
    foreign = tmp_path_factory.mktemp("foreign")
    os.chown(foreign, 12345, 12345)
    clock = folder / "clock.so"
    compiler = shutil.which("cc")
    if compiler:
        subprocess.run([compiler, "-shared", "-fPIC", "-o", clock, HELPERS / "shifted_clock.c", "-ldl"], check=True)
    head, address = start_head(folder, BY_SETTINGS, "--node-name=head", **own_spans)
    nodes = Nodes(address, folder)
    with socket.create_server(("127.0.0.1", 0)) as silent, contextlib.ExitStack() as stack:
        stack.callback(stop_head, head)
        stack.callback(nodes.stop)
        several = {"RAY_TRACING_EXPORTERS": "otlp,jaeger,skywalking", "RAY_TRACING_SKYWALKING_TRANSPORT": "http"}
        nodes.start(
            "unreached",
            **several,
            OTEL_EXPORTER_OTLP_ENDPOINT="http://collector.invalid:4317",
            RAY_TRACING_JAEGER_ENDPOINT=f"http://127.0.0.1:{free_port()}",
            RAY_TRACING_SKYWALKING_ENDPOINT=certified,
            RAY_TRACING_SPOOL_SIZE="1 GiB",
        )
        nodes.start(
            "refused",
            **several,
            OTEL_EXPORTER_OTLP_ENDPOINT=f"{server.endpoint}/denied",
            OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
            RAY_TRACING_JAEGER_ENDPOINT=f"{server.endpoint}/nowhere",
            RAY_TRACING_JAEGER_PROTOCOL="otlp-http",
            RAY_TRACING_SKYWALKING_ENDPOINT=f"http://127.0.0.1:{silent.getsockname()[1]}",
            OTEL_BSP_EXPORT_TIMEOUT="1500",
            RAY_TRACING_SPOOL_MAX_BYTES="lots",
            OTEL_EXPORTER_OTLP_ENDPIONT="http://collector:4317",
        )
        nodes.start(
            "misled",
            RAY_TRACING_EXPORTERS="otlp,jaeger",
            OTEL_EXPORTER_OTLP_ENDPOINT=server.endpoint,
            OTEL_EXPORTER_OTLP_PROTOCOL="grpc",
            RAY_TRACING_JAEGER_ENDPOINT=f"{server.endpoint}/refusing{TRACES}",
            RAY_TRACING_JAEGER_PROTOCOL="otlp-http",
            RAY_TRACING_CONFIG="/nowhere/traces.yaml",
            OTEL_TRACES_SAMPLER="parentbased_traceidratio",
            OTEL_TRACES_SAMPLER_ARG="0.001",
            OTEL_EXPORTER_OTLP_CERTIFICATE="/nowhere/ca.pem",
        )
        nodes.start(
            "stored",
            RAY_TRACING_EXPORTERS="otpl",
            RAY_TRACING_LOCAL_DIR=str(foreign),
            RAY_TRACING_SPOOL_DIR=str(full_disk),
            OTEL_TRACES_SAMPLER="traceidratio",
            OTEL_TRACES_SAMPLER_ARG="0",
            OTEL_EXPORTER_OTLP_ENDPOINT="http://collector:4317",
        )
        nodes.start("disabled", OTEL_SDK_DISABLED="true", RAY_TRACING_STRICT="1", **own_spans)
        nodes.start(
            "off",
            RAY_TRACING_EXPORTERS="none",
            RAY_TRACING_RAY="none",
            OTEL_PROPAGATORS="none",
            **({"LD_PRELOAD": str(clock), "CLOCK_SHIFT": "300"} if compiler else {}),
        )
        nodes.start("ending", OTEL_PROPAGATORS="tracecontxt", **own_spans)
        nodes.start("missing", python=without_package(tmp_path_factory.mktemp("missing")), **own_spans)
        nodes.start("other", python=with_version(tmp_path_factory.mktemp("other"), "0.0.7"), **own_spans)
        leave_spans(folder, own)
        code, report = doctor("--address", address, "--timeout", "150", **own_spans)
        assert code == 1
        yield report


def leave_spans(folder: Path, spans: Path) -> None:
    """A spool of the head with spans that nothing delivers, as if its shipper and its processes had been killed."""
    (session,) = {path.resolve() for path in (folder / "ray").glob("session_2*")}
    raylet = next(
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(session) in part for part in process.info["cmdline"] or ())
        and any(part == "--head" for part in process.info["cmdline"] or ())
    )
    node_id = next(part for part in raylet.info["cmdline"] if part.startswith("--node_id=")).partition("=")[2]
    spool = session / "ray_tracing_hooks" / f"{node_id[:12]}-left"
    spool.mkdir(parents=True, mode=0o700)
    spool.parent.chmod(0o700)
    made_plan(("local",), str(spans), 1 << 20, 1 << 30, 1 << 30).store(str(spool))
    writer = SpoolWriter(str(spool))
    prefix = writer.scope(b"", b"\x0a\x01t").to_bytes(2, "little")
    for number in range(3):
        ids = number.to_bytes(16, "big") + b"\x12\x08" + number.to_bytes(8, "big")
        writer.span(prefix, b"\x0a\x10" + ids + b"\x2a\x01s\x39" + bytes(8) + b"\x41" + bytes(8))
    writer.close()


PROBLEMS = {
    ("endpoint-name", "unreached"): "collector.invalid:4317: its name cannot be resolved",
    ("endpoint-connection", "unreached"): "connection refused",
    ("endpoint-tls", "unreached"): "certificate is not trusted",
    ("setting-wrong", "unreached"): "unknown variable RAY_TRACING_SPOOL_SIZE",
    ("endpoint-denied", "refused"): "401 Unauthorized",
    ("endpoint-path", "refused"): "404 Not Found",
    ("endpoint-silent", "refused"): "no response within 1.5 s",
    ("setting-wrong", "refused"): "RAY_TRACING_SPOOL_MAX_BYTES='lots' is ignored",
    ("endpoint-silent", "misled"): "does not speak gRPC",
    ("endpoint-refuses", "misled"): "400 Bad Request",
    ("setting-wrong", "misled"): "RAY_TRACING_CONFIG='/nowhere/traces.yaml' is ignored",
    ("folder-unusable", "stored"): "belongs to another user (uid 12345)",
    ("disk-full", "stored"): "is full",
    ("setting-wrong", "stored"): "unknown exporter 'otpl'",
    ("worker-reports", "stored"): "No space left on device",
    ("not-sampled", "stored"): "no trace is sampled",
    ("tracing-disabled", "disabled"): "OTEL_SDK_DISABLED=true",
    ("no-exporter", "off"): "RAY_TRACING_EXPORTERS=none",
    ("no-part-of-ray", "off"): "RAY_TRACING_RAY=none",
    ("clock", "off"): "the clock is 5m 00s ahead",
    ("worker-ends", "ending"): "every worker ends when it starts",
    ("setting-wrong", "ending"): "OTEL_PROPAGATORS='tracecontxt' is ignored",
    ("package-missing", "missing"): "ray-tracing-hooks is not installed, so every worker ends when it starts",
    ("package-version", "other"): f"ray-tracing-hooks 0.0.7 is installed, and {__version__} here",
    ("shipper-gone", "head"): "spans wait, and no shipper delivers them",
}
"""What was planted, by the id of the finding and the node, with a part of the text."""

WARNINGS = {
    ("variable-misspelled", "refused"): "nothing reads OTEL_EXPORTER_OTLP_ENDPIONT",
    ("rarely-sampled", "misled"): "only 0.100% of traces are sampled",
    ("endpoint-unused", "stored"): "OTEL_EXPORTER_OTLP_ENDPOINT is set, but spans go to local files only",
    ("strict", "disabled"): "RAY_TRACING_STRICT=1",
    ("no-propagation", "off"): "OTEL_PROPAGATORS=none",
    ("settings-differ", ""): "settings differ between nodes",
}


WITH_TEN_NODES = pytest.mark.slow(older_rays=True)  # which start one after the other


@WITH_TEN_NODES
@pytest.mark.parametrize(("id_", "node"), PROBLEMS, ids=map("-".join, PROBLEMS))
def test_each_planted_problem_is_named(planted: dict[str, Any], id_: str, node: str) -> None:
    """What, where, and what to do."""
    if node == "off" and id_ == "clock" and shutil.which("cc") is None:
        pytest.skip("needs a compiler of C to shift the clock")
    matching = [
        finding
        for finding in planted["findings"]
        if finding["id"] == id_ and node in finding["where"] and PROBLEMS[id_, node] in finding["what"]
    ]
    assert matching, json.dumps(planted["findings"], indent=1)
    (finding,) = matching
    assert finding["severity"] == "problem"
    assert len(finding["advice"]) > 10


@WITH_TEN_NODES
@pytest.mark.parametrize(("id_", "node"), WARNINGS, ids=map("-".join, WARNINGS))
def test_each_planted_oddity_is_a_warning(planted: dict[str, Any], id_: str, node: str) -> None:
    texts = [
        finding["what"]
        for finding in planted["findings"]
        if finding["id"] == id_ and finding["severity"] == "warning" and (node in finding["where"] or not node)
    ]
    assert any(WARNINGS[id_, node] in text for text in texts), json.dumps(planted["findings"], indent=1)


@WITH_TEN_NODES
def test_nothing_is_invented_beside_what_was_planted(planted: dict[str, Any]) -> None:
    """The same problem of several nodes is one finding, and the rest of the cluster is right."""
    invented = found(planted, "problem").keys() - PROBLEMS.keys()
    # The other consequences of the same causes.
    assert invented <= {("setting-wrong", "misled")}, json.dumps(planted["findings"], indent=1)
    odd = found(planted, "warning").keys() - WARNINGS.keys()
    assert {id_ for id_, _ in odd} <= {"settings-differ", "disk-small"}, odd
    names = [node["name"] for node in planted["nodes"]]
    assert names == ["head", *sorted(names[1:])]
    assert all(node["answered"] for node in planted["nodes"])


HOOKS = {
    "": ("hook-missing", "started without a tracing hook", "--tracing-startup-hook=ray_tracing_hooks:setup"),
    "ray.util.tracing.setup_local_tmp_tracing:setup_tracing": (
        "hook-of-ray",
        "is Ray's own",
        "ray_tracing_hooks.local",
    ),
    "ray_tracing_hooks.oltp:setup": ("hook-fails", "does not work", "did you mean ray_tracing_hooks.otlp:setup?"),
    "nobodys_module:setup": ("hook-fails", "does not work", "install the module"),
    "foreign_hooks:raises": ("hook-fails", "does not work", "must not raise"),
    "foreign_hooks:does_nothing": (
        "hook-of-others",
        "does not call a hook of this package",
        "call `ray_tracing_hooks.setup()`",
    ),
}
"""Hooks of a cluster, with what is found, and the advice. Ray keeps the hook where each new process reads it."""


@pytest.mark.parametrize(
    "hook",
    # Each takes ten seconds: the other ways to be wrong are tried with the slow tests.
    [hook if hook == "ray_tracing_hooks.oltp:setup" else pytest.param(hook, marks=pytest.mark.slow) for hook in HOOKS],
    ids=lambda hook: hook or "none",
)
def test_a_wrong_hook_is_named(untraced: str, hook: str) -> None:
    """Also where every worker ends when it starts: it is asked by one that skips the hook."""
    with keeping(untraced, hook):
        code, report = doctor("--address", untraced, "--no-test-span", "--timeout", "60")
    id_, what, advice = HOOKS[hook]
    problems = {id(each): each for each in found(report, "problem").values()}
    (finding,) = problems.values()
    assert (code, finding["id"]) == (1, id_), report["findings"]
    assert what in finding["what"]
    assert advice in finding["advice"]
    if id_ == "hook-fails":
        assert finding["details"], "the error itself"
        assert any(word in finding["details"][0] for word in ("ModuleNotFoundError", "ValueError: a hook of a test"))
    assert [node["answered"] for node in report["nodes"]] == [True]


def test_a_hook_of_others_that_calls_ours_is_right(untraced: str, tmp_path: Path) -> None:
    with keeping(untraced, "foreign_hooks:calls_ours"):
        code, report = doctor("--address", untraced, "--no-test-span", RAY_TRACING_LOCAL_DIR=str(tmp_path))
    assert code == 0, report["findings"]
    assert any("foreign_hooks:calls_ours traces workers" in each["what"] for each in report["findings"])


@contextlib.contextmanager
def keeping(address: str, hook: str) -> Iterator[None]:
    """The cluster has this hook within the block."""
    program = (
        "import sys, ray; from ray._raylet import GcsClient; client = GcsClient(address=sys.argv[1]); "
        "key, space = b'tracing_startup_hook', b'tracing'; "
        "client.internal_kv_put(key, sys.argv[2].encode(), True, space) if sys.argv[2] else "
        "client.internal_kv_del(key, False, space)"
    )

    def put(value: str) -> None:
        python("-c", program, address, value)

    put(hook)
    try:
        yield
    finally:
        put("")


def test_where_nothing_answers_it_looks_at_this_machine(tmp_path: Path) -> None:
    """A wrong address is named; without one, this machine is looked at with the hook that is going to be used."""
    nobody = f"127.0.0.1:{free_port()}"
    code, report = doctor("--address", nobody, RAY_TRACING_LOCAL_DIR=str(tmp_path))
    assert code == 1
    assert list(found(report, "problem")) == [("cluster-unreachable", "")]
    assert "no answer from a Ray cluster at" in report["findings"][0]["what"]

    alone = {"RAY_TMPDIR": str(tmp_path), "RAY_TRACING_LOCAL_DIR": str(tmp_path / "spans")}
    code, report = doctor(**alone)
    assert code == 0, report["findings"]
    assert [finding["id"] for finding in report["findings"]] == ["no-cluster", "hook", "settings", "delivery", "disk"]
    assert not (tmp_path / "spans").exists(), "it leaves nothing behind"

    code, report = doctor(
        "--hook", "ray_tracing_hooks.otlp:setup", OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{nobody}", **alone
    )
    assert list(found(report, "problem")) == [("endpoint-connection", "here")]
    code, report = doctor("--hook", "ray_tracing_hooks.oltp:setup", **alone)
    assert list(found(report, "problem")) == [("hook-fails", "here")]

    (tmp_path / "ray.py").write_text("raise ImportError('there is no Ray')")
    text = run(PYTHONPATH=f"{tmp_path}:{environment()['PYTHONPATH']}", **alone)
    assert text.returncode == 0
    assert "Ray is not installed here: there is no Ray" in text.stdout


def test_wrong_use_is_said(tmp_path: Path) -> None:
    for arguments, expected in (
        (("--address", "nonsense"), "'nonsense' is not the address of a cluster's head: expected HOST:PORT, or ray://"),
        (("--hook", "nonsense"), "'nonsense' is not a hook: expected MODULE:NAME"),
    ):
        done = run(*arguments, RAY_TMPDIR=str(tmp_path))
        assert done.returncode == 2
        assert expected in " ".join(done.stderr.split())


TASKS = """
import ray, sys
ray.init(sys.argv[1])
task = ray.remote(num_cpus=0)(lambda: None)
ray.get([task.remote() for _ in range(20)])
"""


def test_status_shows_what_each_node_records_and_delivers(healthy: Healthy, server: Received) -> None:
    """Live: how much is recorded, what waits for a destination that fails and why, and that it arrives in the end."""
    address, variables, *_ = healthy
    server.answers[TRACES] = 503
    spans_before = len(server.spans)
    watching = subprocess.Popen(
        [*COMMAND, "status", "--address", address, "--watch", "--interval", "1", "--json"],
        env=environment(**{**variables, "PYTHONWARNINGS": "ignore"}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        assert [node["name"] for node in first["nodes"]] == ["head", "second", "third"]
        assert all(node["error"] is None for node in first["nodes"])
        # A driver that does not wait for a destination that fails.
        python("-c", TASKS, address, **{**variables, "RAY_TRACING_FLUSH_TIMEOUT": "0.5"})
        failing = seen(watching, lambda each: each["is_failing"] and each["waiting"] > 5)
        assert "503" in failing["error"]
        assert failing["oldest_ns"] > 0
        local = seen(watching, lambda each: each["exporter"] == "local" and each["delivered"] > 5 > each["waiting"])
        assert (local["refused"], local["is_failing"]) == (0, False)
    finally:
        server.answers.pop(TRACES, None)
        watching.send_signal(signal.SIGINT)
        _, errors = watching.communicate(timeout=60)
    assert (watching.returncode, errors) == (0, "")

    deadline = time.monotonic() + 60
    while len(server.spans) < spans_before + failing["waiting"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    done = command("status", "--address", address, **variables)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Cluster ")
    assert ", 3 nodes: " in lines[0]
    assert lines[0].endswith(" 0 waiting, 0 lost")
    assert lines[2].split() == ["NODE", "WRITERS", "SPANS/S", "TO", "DELIVERED", "WAITING", "OLDEST", "LOST", "RETRIES"]
    assert {line.split()[0] for line in lines[3:] if line.startswith(" ") and len(line.split()) > 5} >= {"head"}
    assert "ago; no longer)" in " ".join(done.stdout.split()), "the last error of a destination that works again"


def seen(watching: subprocess.Popen[str], condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The figures of a destination that are shown first that meet a condition."""
    assert watching.stdout is not None
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for node in json.loads(watching.stdout.readline())["nodes"]:
            for spool in node["spools"]:
                for each in spool["figures"]["destinations"]:
                    if condition(each):
                        found: dict[str, Any] = each
                        return found
    raise AssertionError("waited in vain for these figures")


@pytest.mark.slow  # it waits for an answer
def test_a_node_that_does_not_answer_is_named(healthy: Healthy) -> None:
    """After the time that it has, and not later."""
    silent_name = "second" if healthy.own() == "third" else "third"
    with healthy.suspended(silent_name):
        code, report = doctor("--address", healthy.address, "--no-test-span", "--timeout", "15", **healthy.variables)
    assert code == 1
    silent = found(report, "problem")["node-silent", silent_name]
    assert silent["what"] == "no answer within 15 s came"
    assert [node["answered"] for node in report["nodes"] if node["name"] == silent_name] == [False]


@pytest.mark.slow  # it waits for an answer
def test_a_node_is_not_examined_from_where_the_raylet_is_silent(healthy: Healthy) -> None:
    """Ray ends a driver whose raylet does not answer, without a word from Python."""
    with healthy.suspended(healthy.own()):
        code, report = doctor("--address", healthy.address, "--no-test-span", **healthy.variables)
    assert code == 1
    unreachable = found(report, "problem")["cluster-unreachable", ""]
    assert "the raylet of this node" in unreachable["what"]
    assert "did not answer within 25 s" in unreachable["what"]
    assert unreachable["advice"].startswith("run this on another node of the cluster")
