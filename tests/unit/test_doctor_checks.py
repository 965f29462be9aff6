"""The checks of ``doctor``, on plain data: what each finds, and that none finds anything where all is well."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ray_tracing_hooks._cli.doctor import _lines, as_text
from ray_tracing_hooks._ops.checks import findings
from ray_tracing_hooks._ops.cluster import Node
from ray_tracing_hooks._ops.diagnosis import GOOD, PROBLEM, WARNING, Diagnosis, merged, where
from ray_tracing_hooks._ops.effective import effective
from ray_tracing_hooks._ops.examination import _rows
from ray_tracing_hooks._ops.facts import (
    LOCAL_HOST,
    Clock,
    DeliveryTrial,
    Examined,
    Facts,
    FolderFacts,
    Host,
    SpoolFacts,
    as_json,
)
from ray_tracing_hooks._ops.head import Head
from ray_tracing_hooks._ship.figures import DestinationFigures, Figures
from ray_tracing_hooks._version import __version__

GIB = 1 << 30
ENDPOINT = "OTLP http://collector:4317"
OTLP_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
ENTRIES = re.findall(r'<a id="(.*?)">', (Path(__file__).parents[2] / "docs/reference/doctor.md").read_text())
VERSIONS = {"opentelemetry-api": "1.45.2", "opentelemetry-sdk": "1.45.2", "opentelemetry-proto": "1.45.2"}


def trial(**changes: Any) -> DeliveryTrial:
    arrived = DeliveryTrial("otlp", ENDPOINT, True, seconds=0.02)
    return replace(arrived, **changes)


def figures(**changes: Any) -> Figures:
    destination = DestinationFigures(exporter="otlp", address=ENDPOINT, received=100, delivered=100)
    values: dict[str, Any] = {"limit_bytes": GIB, "destinations": (destination,), **changes}
    return Figures(**values)


def waiting(**changes: Any) -> Figures:
    """The figures of a spool with spans that wait for a destination."""
    values: dict[str, Any] = {"address": ENDPOINT, "waiting": 5, "oldest_ns": time.time_ns() - 10**9, **changes}
    return figures(destinations=(DestinationFigures(exporter="otlp", **values),))


def spool(**changes: Any) -> SpoolFacts:
    return replace(SpoolFacts("/s/a-1", True, False, None, ("otlp",), figures()), **changes)


def examined(**changes: Any) -> Examined:
    folder = FolderFacts("spool", "/s/a-1", None, False, 50 * GIB, GIB)
    return replace(Examined(("otlp",), {}, (), (), (trial(),), (folder,), (spool(),)), **changes)


def place(name: str, **changes: Any) -> Host:
    node = Node(name * 10, name, "10.0.0.1", name == "a") if name != LOCAL_HOST else None
    found = Host(
        name,
        node,
        python="3.11.7",
        ray="2.60.0",
        package=__version__,
        distributions=VERSIONS,
        called=node is not None,
        traced=node is not None,
        examined=examined(spools=(spool(path=f"/s/{name}-1"),)),
        clock=Clock(0.001, 0.002) if node is not None else None,
    )
    return replace(found, **changes)


def facts(*nodes: Host, **changes: Any) -> Facts:
    """A healthy cluster of the nodes a, b and c, with ``nodes`` in place of those of their names."""
    given = {node.name: node for node in nodes}
    found = Facts(
        "10.0.0.1:6379",
        Head("session_1", "ray_tracing_hooks.otlp:setup", False, "2.60.0"),
        "",
        False,
        "ray_tracing_hooks.otlp:setup",
        tuple(given.get(name, place(name)) for name in "abc"),
        given.get(LOCAL_HOST, place(LOCAL_HOST)),
    )
    return found._replace(**changes)


def on_b(**changes: Any) -> Facts:
    """A cluster that is healthy but for its node b."""
    return facts(place("b", **changes))


def seen(**changes: Any) -> Facts:
    """The same, where an examination of the node shows it."""
    return on_b(examined=examined(**changes))


def tried(**changes: Any) -> Facts:
    """The same, where a test span shows it."""
    return seen(trials=(trial(**changes),))


def spooled(**changes: Any) -> Facts:
    """The same, where its spool shows it."""
    return seen(spools=(spool(**changes),))


def bad(found: Facts) -> list[Diagnosis]:
    """What is wrong. Each problem and warning has an entry in the documentation, which its id leads to."""
    results = [finding for finding in findings(found) if finding.severity != GOOD]
    assert {finding.id for finding in results} <= set(ENTRIES)
    return results


def test_of_a_healthy_cluster_there_is_only_good_to_say() -> None:
    """Each area says so in a line."""
    found = findings(facts())
    assert {finding.severity for finding in found} == {GOOD}
    texts = {finding.id: finding.what for finding in found}
    assert texts == {
        "nodes": f"all 3 nodes answer: Ray 2.60.0, ray-tracing-hooks {__version__}",
        "hook": "ray_tracing_hooks.otlp:setup traces workers of all nodes",
        "settings": "settings are valid, and the same everywhere",
        "delivery": f"{ENDPOINT}: 4 test spans were accepted, in 20.0 ms to 20.0 ms",
        "disk": "folders for spans are writable, with 50.0 GiB free or more",
        "shippers": "4 shippers run: 400 spans delivered so far, 0 waiting",
        "clocks": "clocks agree within 2.00 ms",
    }


def test_advice_says_where_a_setting_comes_from() -> None:
    """Correcting the environment changes nothing where a command has set it."""
    unknown = trial(error="http://colector:4317: its name cannot be resolved")
    wrong = (PROBLEM, "RAY_TRACING_EXPORTERS='otpl' is ignored")
    variables = {"endpoint-name": "OTEL_EXPORTER_OTLP_ENDPOINT", "setting-wrong": "RAY_TRACING_EXPORTERS"}
    for configured in ((), tuple(variables.values())):
        found = examined(trials=(unknown,), problems=(wrong,), configured=configured)
        advice = {finding.id: finding.advice for finding in bad(facts(place("b", examined=found)))}
        for finding, variable in variables.items():
            said = f"a command has set {variable} for the running cluster: use `ray-tracing-hooks configure`"
            assert (said in advice[finding]) == bool(configured)


def test_without_a_cluster_nobody_says_that_there_are_no_problems() -> None:
    """Only this machine was looked at. If a cluster was looked for, that there is none is a warning."""
    alone = facts(address=None, head=None, nodes=())
    assert [finding.severity for finding in bad(alone)] == []
    assert "Passed" in list(_lines(alone, findings(alone)))
    assert "No problems found" in list(_lines(facts(), findings(facts())))
    (missed,) = bad(alone._replace(alone="no cluster runs here"))
    assert (missed.id, missed.severity) == ("no-cluster", WARNING)
    assert missed.what == "no cluster runs here: only this machine was checked"
    assert "--address HOST:PORT" in missed.advice


CASES: list[tuple[str, str, str, Facts]] = [
    (
        PROBLEM,
        "node-silent",
        "no answer within 30 s came",
        facts(Host("b", Node("b", "b", "", False), failure="silent", text="no answer within 30 s")),
    ),
    (WARNING, "node-gone", "left the cluster", facts(Host("b", None, failure="gone"))),
    (PROBLEM, "worker-died", "workers end", facts(Host("b", None, failure="died", text="x"))),
    (PROBLEM, "node-failed", "OSError: no", facts(Host("b", None, failure="failed", text="OSError: no"))),
    (PROBLEM, "node-unexamined", "ValueError: x", on_b(examined=None, examination_error="ValueError: x")),
    (PROBLEM, "switched-off", "`ray-tracing-hooks disable` has switched tracing off", seen(is_on=False)),
    (
        WARNING,
        "hook-late",
        "while the cluster was running",
        facts(head=Head("s", "ray_tracing_hooks.otlp:setup", True, "2.60.0")),
    ),
    (
        PROBLEM,
        "hook-without-effect",
        "does not trace the worker",
        on_b(traced=False, reported=("setting up tracing failed: OSError",)),
    ),
    (
        PROBLEM,
        "package-broken",
        "installed, but cannot be imported",
        on_b(package="", package_error="ImportError: cannot import name 'x'"),
    ),
    (PROBLEM, "ray-old", "Ray 2.9.3 is older than 2.40", on_b(ray="2.9.3")),
    (
        WARNING,
        "versions-differ",
        "opentelemetry-api differs between nodes: 1.44.0 on b, 1.45.2 on a, c",
        on_b(distributions=dict.fromkeys(VERSIONS, "1.44.0")),
    ),
    (WARNING, "setting-odd", "has no scheme", seen(problems=((WARNING, "ENDPOINT has no scheme, so TLS is used."),))),
    (
        WARNING,
        "settings-of-driver",
        "a driver started from this shell has other settings",
        facts(
            place(LOCAL_HOST, examined=examined(settings={"RAY_TRACING_EXPORTERS": ("local", "RAY_TRACING_EXPORTERS")}))
        ),
    ),
    (
        WARNING,
        "not-sampled",
        "only spans that fail or are slow are recorded",
        facts(
            *(
                place(
                    name,
                    examined=examined(
                        settings={"OTEL_TRACES_SAMPLER": ("always_off", ""), "RAY_TRACING_KEEP_ERRORS": ("1", "")}
                    ),
                )
                for name in ("a", "b", "c", LOCAL_HOST)
            )
        ),
    ),
    (PROBLEM, "proxy", "HTTP 407", tried(error="HTTP 407 Proxy Authentication Required", is_refused=True)),
    (
        PROBLEM,
        "endpoint-tls",
        "expired",
        tried(error="cannot reach it: its certificate has expired, or that of its CA"),
    ),
    (PROBLEM, "endpoint-tls", "does not speak TLS", tried(error="it does not speak TLS; should the endpoint begin")),
    (
        PROBLEM,
        "endpoint-tls",
        "the server speaks TLS",
        tried(error="HTTP 400 Bad Request: the server speaks TLS; begin the endpoint with https://", is_refused=True),
    ),
    (
        PROBLEM,
        "exporter-unusable",
        "the exporter 'otlp' cannot be used: pip install thrift",
        tried(error="pip install thrift", is_setting=True),
    ),
    (WARNING, "delivery-warning", "it is slow", tried(warnings=("it is slow",))),
    (
        PROBLEM,
        "disk-nearly-full",
        "the folder of local files is nearly full",
        seen(folders=(FolderFacts("local", "/s", None, False, 1 << 20, 0),)),
    ),
    (
        WARNING,
        "disk-small",
        "less room than RAY_TRACING_SPOOL_MAX_BYTES",
        seen(folders=(FolderFacts("spool", "/s", None, False, 2 * GIB, 5 * GIB),)),
    ),
    (PROBLEM, "spool-unreadable", "Permission denied", spooled(error="Permission denied")),
    (PROBLEM, "shipper-stuck", "a shipper hangs: it delivers nothing", spooled(is_stuck=True)),
    (PROBLEM, "spans-refused", "has refused spans", spooled(figures=waiting(refused=2, waiting=0))),
    (PROBLEM, "spans-dropped", "were dropped", spooled(figures=waiting(dropped=2, waiting=0))),
    (PROBLEM, "spans-unwritten", "could not be written", spooled(figures=figures(unwritten=3))),
    (WARNING, "spool-full", "nearly full", spooled(figures=figures(bytes=GIB - 1))),
    (
        WARNING,
        "shipper-reports",
        "a shipper reports: metrics are not served",
        spooled(figures=figures(problems=("metrics are not served",))),
    ),
    (
        PROBLEM,
        "delivery-fails",
        f"spans wait for {ENDPOINT}: HTTP 503",
        spooled(figures=waiting(is_failing=True, error="HTTP 503", retries=3)),
    ),
    (
        WARNING,
        "delivery-slow",
        "spans have waited long",
        spooled(figures=waiting(oldest_ns=time.time_ns() - 300 * 10**9)),
    ),
    (WARNING, "clock", "the clock is 500 ms behind", on_b(clock=Clock(-0.5, 0.01))),
]


@pytest.mark.parametrize(
    ("exporter", "reached", "advice"),
    [
        ("otlp", ("otlp",), "these spans are then delivered too"),
        ("otlp", (), "send them with `ray-tracing-hooks replay` once Ray has ended"),
        ("local", (), "written once the folder can be used"),
    ],
)
def test_configure_is_advised_where_it_helps(exporter: str, reached: tuple[str, ...], advice: str) -> None:
    """It does not reach what ended processes have left, nor files."""
    failing = DestinationFigures(exporter=exporter, address="there", waiting=5, is_failing=True, error="no")
    left = spool(exporters=(exporter,), figures=figures(destinations=(failing,)), reached=reached)
    (finding,) = [
        each for each in findings(facts(place("b", examined=examined(spools=(left,))))) if each.id == "delivery-fails"
    ]
    assert finding.advice.endswith(advice)


def test_what_waits_for_another_destination_is_found_too() -> None:
    """A driver with other settings has left it; the test span says nothing of its destination."""
    failing = (trial(error="connection refused"),)
    elsewhere = "OTLP http://localhost:4317"
    left = spool(figures=waiting(address=elsewhere, is_failing=True, error="no"))
    same = spool(figures=waiting(is_failing=True, error="no"))
    found = findings(facts(place("b", examined=examined(trials=failing, spools=(left, same)))))
    assert [each.what for each in found if each.id == "delivery-fails"] == [f"spans wait for {elsewhere}: no"]


@pytest.mark.parametrize(("configured", "says_so"), [((), False), (("OTEL_TRACES_SAMPLER",), True)])
def test_an_advice_says_that_a_command_has_set_the_variable(configured: tuple[str, ...], says_so: bool) -> None:
    """Unsetting it in an environment would change nothing."""
    settings = {"OTEL_TRACES_SAMPLER": ("always_off", "")}
    places = (place(name, examined=examined(settings=settings, configured=configured)) for name in ("a", "b", "c"))
    (finding,) = [each for each in findings(facts(*places)) if each.id == "not-sampled"]
    assert ("use `ray-tracing-hooks configure`" in finding.advice) is says_so


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("UNIMPLEMENTED: Received http2 header with status: 404", "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"),
        ("HTTP 404 Not Found", "OTLP over HTTP expects /v1/traces"),
    ],
)
def test_the_advice_is_for_the_protocol_in_use(error: str, advice: str) -> None:
    refused = (trial(error=error, is_refused=True),)
    (finding,) = [
        each for each in findings(facts(place("b", examined=examined(trials=refused)))) if each.id == "endpoint-path"
    ]
    assert advice in finding.advice


def test_a_node_without_the_package_is_one_finding() -> None:
    """Packages that it needs are missing there too."""
    missing = place(
        "b",
        package="",
        package_error="ModuleNotFoundError: No module named 'ray_tracing_hooks'",
        distributions={},
        examined=None,
        called=False,
        traced=False,
    )
    assert [each.id for each in findings(facts(missing)) if each.severity != GOOD] == ["package-missing"]


def test_without_an_answer_nothing_is_said_of_the_hook() -> None:
    """It is not known, so the defaults say nothing of where spans go."""
    files = trial(exporter="local", text="/tmp/spans", sent=False)
    here = examined(exporters=("local",), settings={OTLP_ENDPOINT: (ENDPOINT, "")}, trials=(files,))
    found = findings(facts(place(LOCAL_HOST, examined=here), nodes=(), head=None, hook=None, unreachable="no answer"))
    assert [each.id for each in found if each.id in {"endpoint-unused", "delivery"}] == []
    assert "cluster-unreachable" in {each.id for each in found}


@pytest.mark.parametrize(("severity", "id_", "text", "found"), CASES)
def test_a_check_finds_what_is_wrong_and_nothing_else(severity: str, id_: str, text: str, found: Facts) -> None:
    """It says where, and what to do."""
    results = bad(found)
    matching = [finding for finding in results if finding.id == id_]
    assert matching, results
    assert {finding.id for finding in results} == {id_}
    for finding in matching:
        assert finding.severity == severity
        assert finding.advice
    assert any(text in finding.what for finding in matching), matching
    places = {name for finding in matching for name in finding.where}
    assert places <= {"a", "b", "c", LOCAL_HOST}


def test_an_endpoint_may_differ_as_long_as_spans_arrive() -> None:
    """Each node may have a collector of its own; attributes of the resource name the node."""
    own = {
        name: {"OTEL_EXPORTER_OTLP_ENDPOINT": (f"http://{name}:4317", ""), "OTEL_RESOURCE_ATTRIBUTES": (name, "")}
        for name in "abc"
    }
    nodes = [place(name, examined=examined(settings=settings)) for name, settings in own.items()]
    assert bad(facts(*nodes)) == []
    failing = replace(
        nodes[1],
        examined=examined(settings=own["b"], trials=(trial(error="connection refused"),)),
    )
    results = bad(facts(nodes[0], failing, nodes[2]))
    assert [finding.id for finding in results] == ["endpoint-connection", "settings-differ"]
    assert results[1].details == (
        "OTEL_EXPORTER_OTLP_ENDPOINT: http://a:4317 on a; http://b:4317 on b; http://c:4317 on c",
    )


def test_a_clock_is_wrong_only_if_that_is_certain() -> None:
    """An answer that took long says little. The clock of this machine counts too: drivers run here."""
    assert bad(facts(place("b", clock=Clock(1.0, 1.5)))) == []
    ahead = [place(name, clock=Clock(300.0, 0.01)) for name in "abc"]
    (finding,) = bad(facts(*ahead))
    assert (finding.what, finding.where) == ("the clock is 5m 00s behind", (LOCAL_HOST,))
    (finding,) = bad(facts(place("b", clock=Clock(300.0, 0.01))))
    assert (finding.severity, finding.what) == (PROBLEM, "the clock is 5m 00s ahead")


def test_what_was_sent_by_udp_is_not_said_to_have_arrived() -> None:
    udp = examined(trials=(trial(text="Jaeger udp://agent:6831"),))
    found = findings(facts(*(place(name, examined=udp) for name in ("a", "b", "c", LOCAL_HOST))))
    (text,) = [finding.what for finding in found if finding.id == "delivery"]
    assert text == (
        "Jaeger udp://agent:6831: 4 test spans were sent; UDP has no answer, so nobody knows whether they arrived"
    )


def test_of_a_folder_that_takes_no_files_it_is_not_said_that_spans_are_written_to_it() -> None:
    written = trial(exporter="local", text="/data/spans", sent=False)
    good, unusable = (FolderFacts("local", "/data/spans", error, False, 50 * GIB, GIB) for error in (None, "read-only"))
    for folder, said in ((good, ["spans are written to /data/spans"]), (unusable, [])):
        here = place(LOCAL_HOST, examined=examined(trials=(written,), folders=(folder,)))
        found = findings(facts(nodes=(), here=here))
        assert [finding.what for finding in found if finding.id == "delivery"] == said
        assert ("folder-unusable" in [finding.id for finding in found]) == (not said)


def test_what_fails_now_is_said_once() -> None:
    """A test span that does not arrive explains why spans wait."""
    both = examined(
        trials=(trial(error="HTTP 503"),), spools=(spool(figures=waiting(is_failing=True, error="HTTP 503")),)
    )
    assert [finding.id for finding in bad(facts(place("b", examined=both)))] == ["endpoint-silent"]


def test_the_same_on_several_nodes_is_one_finding() -> None:
    """Problems first; details of all of them."""
    found = merged(
        [
            Diagnosis("x", WARNING, "odd", ("a",), "do", ("one",)),
            Diagnosis("y", PROBLEM, "wrong", ("a",), "do"),
            Diagnosis("x", WARNING, "odd", ("b",), "do", ("two",)),
        ]
    )
    assert [finding.id for finding in found] == ["y", "x"]
    assert (found[1].where, found[1].details) == (("a", "b"), ("one", "two"))


@pytest.mark.parametrize(
    ("places", "text"),
    [
        ((), ""),
        (("n1",), "on n1"),
        (("n1", "n2"), "on n1, n2"),
        (tuple(f"n{number}" for number in range(9)), "on n0, n1, n2, n3 and 5 more"),
        (tuple(f"n{number}" for number in range(10)), "on all 10 nodes"),
        ((*(f"n{number}" for number in range(10)), LOCAL_HOST), "on all 10 nodes and on this machine"),
        ((LOCAL_HOST,), "on this machine"),
    ],
)
def test_places_are_named_in_short(places: tuple[str, ...], text: str) -> None:
    assert where(places, dict.fromkeys(f"n{number}" for number in range(10))) == text


def test_a_node_masks_resource_attributes_whose_keys_name_a_secret() -> None:
    """The block for a bug report has the others as they are."""
    environ = {"OTEL_RESOURCE_ATTRIBUTES": "deployment=blue,api.token=hunter2"}
    value, variable = _rows(effective(environ), environ)["OTEL_RESOURCE_ATTRIBUTES"]
    assert (value, variable) == ("deployment=blue,api.token=********", "OTEL_RESOURCE_ATTRIBUTES")


def test_the_block_for_a_bug_report_has_versions_settings_and_problems() -> None:
    """Nodes that are alike have them once. The text of a secret is that of the node, which has masked it."""
    settings = {"OTEL_EXPORTER_OTLP_HEADERS": ("api-key=********", "OTEL_EXPORTER_OTLP_HEADERS")}
    silent = Host("b", Node("bb", "b", "10.0.0.2", False), failure="silent", text="no answer within 30 s")
    found = facts(silent, place("c", ray="2.59.0", examined=examined(settings=settings)))
    first, cluster, *lines = as_text(found, findings(found))
    assert first.startswith(f"ray-tracing-hooks {__version__}, compiled part ")
    assert cluster == "cluster 10.0.0.1:6379, 3 nodes, hook ray_tracing_hooks.otlp:setup"
    versions = ", ".join(f"{name} {version}" for name, version in sorted(VERSIONS.items()))
    a, c = (f"  Python 3.11.7, Ray {ray}, ray-tracing-hooks {__version__}, {versions}" for ray in ("2.60.0", "2.59.0"))
    of_c = ["c:", c, "  exporters: otlp", "  OTEL_EXPORTER_OTLP_HEADERS=api-key=********"]
    assert lines[: 3 + len(of_c)] == ["a, here:", a, "  exporters: otlp", *of_c]
    assert lines[3 + len(of_c)] == "problems and warnings:"
    assert "  problem node-silent (b): no answer within 30 s came" in lines


def test_the_report_has_what_is_known() -> None:
    """Of a node that did not answer, nothing but its name."""
    silent = Host("b", Node("bb", "b", "10.0.0.2", False), failure="silent", text="no answer")
    found = facts(silent)
    report = as_json(found, findings(found))
    assert (report["version"], report["healthy"], report["ray"]) == (1, False, "2.60.0")
    assert report["nodes"][1] == {
        "name": "b",
        "id": "bb",
        "ip": "10.0.0.2",
        "answered": False,
        "python": None,
        "ray": None,
        "package": None,
        "exporters": None,
        "clock_offset": None,
        "spools": None,
    }
    (finding,) = [each for each in report["findings"] if each["severity"] == "problem"]
    assert finding["where"] == ["b"]
    assert finding.keys() == {"id", "severity", "what", "where", "advice", "details"}


def test_a_probe_of_another_version_is_read_as_far_as_it_goes() -> None:
    """What is missing is unknown."""
    assert Host.of("a", {}) == Host("a")
    found = Host.of("a", {"package": "9", "called": True, "examined": {"exporters": ["x"], "of later": 1}})
    assert (found.package, found.called, found.traced) == ("9", True, False)
    assert found.examined == Examined(("x",))


def test_a_spool_of_another_version_is_read_or_named() -> None:
    """What is malformed is an error of the spool, and not of the command."""
    assert SpoolFacts.of({"path": "/s/a-1", "runs": True}) == SpoolFacts("/s/a-1", True)
    wrong = SpoolFacts.of({"path": "/s/a-1", "figures": {"writers": "many"}})
    assert wrong.path == "/s/a-1"
    assert wrong.error == "the answer of its node cannot be read: Expected `int`, got `str` - at `$.figures.writers`"


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        (
            {"settings": {}},
            "correct the host name in OTEL_EXPORTER_OTLP_ENDPOINT, or the DNS configuration of the node",
        ),
        (
            {"settings": {OTLP_ENDPOINT: ("http://c", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")}},
            ". It is set by OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        ),
    ],
)
def test_advice_knows_where_an_address_is_set(changes: dict[str, Any], advice: str) -> None:
    wrong = trial(error="http://colector:4317: its name cannot be resolved")
    found = findings(facts(place("b", examined=examined(trials=(wrong,), **changes))))
    (finding,) = (each for each in found if each.id == "endpoint-name")
    assert finding.advice.endswith(advice)
