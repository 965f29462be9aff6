"""Requests to Ray Serve are one trace each, from the proxy to what the user's code calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import installed
import pytest
from conftest import Cluster
from support import (
    CLIENT,
    CONSUMER,
    HOOK,
    INSIDE,
    PRODUCER,
    SERVER,
    Served,
    await_spans,
    below,
    by_name,
    path_with,
    run_program,
    serve_route,
    spans_in,
    text_of_serve,
    tree,
    with_extras,
)

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import RUN
from ray_tracing_hooks._insight.model.span import Span
from ray_tracing_hooks._insight.model.table import Table

CONCURRENT = 24


@pytest.fixture(scope="module")
def served(serving: Cluster) -> Served:
    run = serving.run("serve_app")
    return Served(run.result, spans_in(serving.spans))


def test_a_request_is_one_trace_from_the_proxy_to_the_last_task(served: Served) -> None:
    assert served.tree("predict") == (
        f"GET {serve_route('/api', '/predict/{x}')}\n"
        "  Api.__call__ serve.remote\n"
        "    Api.__call__ serve.replica\n"
        "      ingress 3\n"
        "        Model.predict serve.remote\n"
        "          Model.predict serve.replica\n"
        "            predict 3\n"
        "              Counter.add call\n"
        "              __main__.square call"
    )
    proxy = served.proxy("predict")
    assert proxy.parent_id == CLIENT
    attributes = {key: proxy.attributes[key] for key in proxy.attributes if key.startswith(("http.", "url."))}
    assert attributes == {
        "http.request.method": "GET",
        "http.route": serve_route("/api", "/predict/{x}"),
        "http.response.status_code": 200,
        "url.path": "/api/predict/3",
        "url.scheme": "http",
    }
    (call,) = by_name(served.trace("predict"), "Model.predict serve.remote")
    (replica,) = by_name(served.trace("predict"), "Model.predict serve.replica")
    assert (call.kind, replica.kind) == (PRODUCER, CONSUMER)
    for span in (call, replica):
        assert span.attributes["ray.serve.application"] == "api"
        assert span.attributes["ray.serve.deployment"] == "Model"
        assert span.attributes["ray.serve.method"] == "predict"
        assert span.attributes["ray.serve.request_id"] == proxy.attributes["ray.serve.request_id"]
    assert replica.attributes["ray.serve.replica_id"]
    assert replica.attributes["ray.submit_time_unix_nano"] == call.start_ns
    (inside,) = by_name(served.trace("predict"), "predict 3")
    assert proxy.start_ns <= call.start_ns <= replica.start_ns <= inside.start_ns
    # A replica that has given its answer is not yet done with the request.
    assert inside.end_ns <= min(replica.end_ns, proxy.end_ns)


def test_a_call_long_after_the_request_that_started_it_is_a_trace_of_its_own(served: Served) -> None:
    """By a task of asyncio, which has the context of that request, and whose result another request waits for."""
    assert served.result["finish"] == [200, "9"]
    begin = served.trace("begin")
    assert not by_name(begin + served.trace("finish"), "Model.plain serve.remote")
    (call,) = (span for span in served.spans if span.attributes.get("ray.after_end", 0) >= 1)
    of_call = [span for span in served.spans if span.trace_id == call.trace_id]
    assert tree(of_call) == "Model.plain serve.remote\n  Model.plain serve.replica\n    plain"
    (link,) = call.links
    assert link.trace_id == begin[0].trace_id, "of a span that FastAPI made, perhaps"


def test_replicas_of_a_proxy_that_was_killed_serve_the_next_one(served: Served) -> None:
    """It has the name of the one before."""
    assert served.tree(served.result["another proxy"]).splitlines()[:4] == [
        f"GET {serve_route('/api', '/predict/{x}')}",
        "  Api.__call__ serve.remote",
        "    Api.__call__ serve.replica",
        "      ingress 6",
    ]


def test_the_application_sees_what_the_client_sent_along(served: Served) -> None:
    assert '"found":13' in served.result["predict"][1]
    for told in (served.trace("predict")[0].trace_id, '"state":"vendor=value"', '"baggage":{"user":"me"}'):
        assert told in served.result["predict"][1]


def test_a_request_that_is_not_sampled_leaves_nothing(served: Served) -> None:
    assert served.result["unsampled"][0] == 200
    assert served.trace("unsampled") == []


def test_a_request_without_a_trace_begins_one(served: Served) -> None:
    """Its own: not that of the driver that started Serve, nor that of the proxy."""
    (ours,) = (span for span in served.spans if span.name == "ingress 4")
    of_trace = [span for span in served.spans if span.trace_id == ours.trace_id]
    (root,) = (span for span in of_trace if not span.parent_id)
    assert root.name == f"GET {serve_route('/api', '/predict/{x}')}"
    assert {"Counter.add ray.remote_worker", "__main__.square ray.remote_worker"} <= {span.name for span in of_trace}
    assert not [span for span in of_trace if span.name.endswith(" ray.driver")]


def test_concurrent_requests_are_not_mixed_up(served: Served) -> None:
    assert [status for status, _ in served.result["concurrent"]] == [200] * CONCURRENT
    for i in range(CONCURRENT):
        assert served.tree(f"concurrent{i}") == (
            f"GET {serve_route('/api', '/predict/{x}')}\n"
            "  Api.__call__ serve.remote\n"
            "    Api.__call__ serve.replica\n"
            f"      ingress {CONCURRENT + i}\n"
            "        Model.predict serve.remote\n"
            "          Model.predict serve.replica\n"
            f"            predict {CONCURRENT + i}\n"
            "              Counter.add call"
        )


def test_sync_methods_are_traced(served: Served) -> None:
    assert served.tree("sync") == (
        f"GET {serve_route('/api', '/sync')}\n  Api.__call__ serve.remote\n    Api.__call__ serve.replica\n      sync"
    )


def test_spans_of_a_streamed_response_last_until_its_end(served: Served) -> None:
    assert served.result["stream"] == [200, "0\n1\n2\n"]
    assert served.tree("stream") == (
        f"GET {serve_route('/api', '/stream')}\n"
        "  Api.__call__ serve.remote\n"
        "    Api.__call__ serve.replica\n"
        "      Model.stream serve.remote\n"
        "        Model.stream serve.replica\n"
        "          item 0\n"
        "          item 1\n"
        "          item 2"
    )
    spans = served.trace("stream")
    proxy = served.proxy("stream")
    assert 0.05 < proxy.attributes["ray.serve.time_to_first_chunk"] < (proxy.end_ns - proxy.start_ns) / 1e9 - 0.05
    (inner,) = by_name(spans, "Model.stream serve.replica")
    (last,) = by_name(spans, "item 2")
    assert last.end_ns <= inner.end_ns
    for name in ("Api.__call__ serve.replica", f"GET {serve_route('/api', '/stream')}"):
        (span,) = by_name(spans, name)
        assert span.end_ns - span.start_ns > 290_000_000, "it waits twice for 150 ms between the chunks"
    (ingress,) = by_name(spans, "Api.__call__ serve.replica")
    assert [span.attributes["ray.serve.items"] for span in (inner, ingress)] == [3, 3]
    first, paused = (ingress.attributes[f"ray.serve.{name}"] for name in ("time_to_first_item", "longest_pause"))
    assert first > 0.14
    assert 0.14 < paused < (ingress.end_ns - ingress.start_ns) / 1e9
    assert 0 < inner.attributes["ray.serve.time_to_first_item"] < (inner.end_ns - inner.start_ns) / 1e9


def test_a_response_in_one_part_is_not_described_as_a_stream(served: Served) -> None:
    (replica,) = by_name(served.trace("sync"), "Api.__call__ serve.replica")
    assert not [key for key in replica.attributes if key.endswith((".items", ".time_to_first_item", ".longest_pause"))]


def test_errors_are_on_the_spans_where_they_happen(served: Served) -> None:
    assert served.result["fail"][0] == 500
    told = {(span.name, span.attributes.get("error.type")) for span in served.trace("fail")}
    assert told == {
        (f"GET {serve_route('/api', '/fail')}", "500"),
        ("Api.__call__ serve.remote", None),
        ("Api.__call__ serve.replica", "KeyError"),
        ("Model.fail serve.remote", None),
        ("Model.fail serve.replica", "KeyError"),
    }
    assert served.result["missing"][0] == 404
    assert served.tree("missing") == "GET", "the fault of the client is no error of the server"
    assert served.result["time-out"][0] == 408
    slow = f"GET {serve_route('/api', '/slow')}"
    assert served.tree("time-out") == (
        f"{slow} !408\n  Api.__call__ serve.remote\n    Api.__call__ serve.replica\n      slow"
    ), "one error for a request that is given up"
    (replica,) = by_name(served.trace("time-out"), "Api.__call__ serve.replica")
    assert replica.attributes["error.type"] == "ray.exceptions.TaskCancelledError"
    assert served.tree("gone").startswith(f"{slow} !499\n")
    assert served.tree("gone").count("!") == 1


def test_handles_in_drivers_and_tasks_are_in_the_traces_of_their_callers(served: Served) -> None:
    assert (served.result["by driver"], served.result["streamed"], served.result["error"]) == (6, [0, 1], True)
    (root,) = (span for span in served.spans if span.name == "by driver")
    below = [span for span in served.spans if span.trace_id == root.trace_id]
    assert tree([span for span in below if span is root or under(span, root, below)]) == (
        "by driver\n"
        "  Model.fail serve.remote\n"
        "    Model.fail serve.replica !KeyError\n"
        "  Model.plain serve.remote\n"
        "    Model.plain serve.replica\n"
        "      plain\n"
        "  Model.stream serve.remote\n"
        "    Model.stream serve.replica\n"
        "      item 0\n"
        "      item 1"
    )
    (root,) = (span for span in served.spans if span.name == "by task")
    assert tree([span for span in below if span is root or under(span, root, below)]) == (
        "by task\n  __main__.calling call\n    Model.plain serve.remote\n      Model.plain serve.replica\n        plain"
    )


@pytest.mark.slow(older_rays=True)  # another application; recorded runs and unit tests have its parts
def test_the_critical_path_goes_through_the_requests_that_a_driver_waits_for(serving: Cluster) -> None:
    """The driver alone records its waits: what a replica waits for is assumed."""
    run = serving.run("serve_waits", RAY_TRACING_RAY="+get,wait")
    assert run.result == [3] * 3
    calls = by_name(run.spans, "Front.__call__ serve.remote")
    objects = {each[:48] for call in calls for each in call.attributes["ray.object_ids"]}
    waited = [span for span in by_name(run.spans, "ray.get") if {*span.attributes.get("ray.object_ids", ())}]
    assert len(objects) == len(calls) == 3
    assert objects <= {each[:48] for span in waited for each in span.attributes["ray.object_ids"]}
    analysis = Analysis(Table.of(run.spans))
    names = [analysis.table.name_of(step.row) for step in analysis.path.steps if step.kind == RUN]
    for method in ("Front.__call__", "Words.count"):
        assert f"{method} serve.replica" in names


def test_the_start_of_a_replica_is_a_trace_of_its_own(served: Served) -> None:
    (start,) = by_name(served.spans, "Model.__init__ serve.replica")
    assert not start.parent_id
    of_start = [span for span in served.spans if span.trace_id == start.trace_id]
    assert tree(of_start) == "Model.__init__ serve.replica\n  Counter.__init__ call"
    assert (start.attributes["ray.serve.deployment"], start.attributes["ray.serve.application"]) == ("Model", "api")


def test_a_deployment_in_the_process_of_the_program_is_part_of_its_code(served: Served) -> None:
    """In Serve's local testing mode there are no replicas and no requests."""
    assert served.result["in this process"] == 8
    assert tree(below(served.spans, "in this process")) == "in this process\n  Counter.__init__ call\n  plain"
    assert not [span.name for span in served.spans if span.name.startswith(".")]


def test_a_batch_is_a_trace_that_is_linked_with_each_request_in_it(served: Served) -> None:
    assert served.result["batched"] == [0, 2, 4]
    (doubles,) = (span for span in served.spans if span.name == "doubles 3" and is_of_many(span, served))
    of_batch = [span for span in served.spans if span.trace_id == doubles.trace_id]
    assert tree(of_batch) == "Batching.double serve.batch\n  doubles 3"
    (batch,) = by_name(of_batch, "Batching.double serve.batch")
    assert (batch.attributes["ray.serve.batch.size"], batch.attributes["ray.serve.deployment"]) == (3, "Batching")
    assert 0 < batch.attributes["ray.serve.batch.wait_time"] < 5
    linked = {link.span_id for link in batch.links}
    for x in range(3):
        spans = served.trace_of(f"batched {x}")
        assert tree(spans) == f"batched {x}\n  Batching.double serve.remote\n    Batching.double serve.replica"
        (replica,) = by_name(spans, "Batching.double serve.replica")
        assert replica.span_id in linked
        (link,) = replica.links
        assert (link.trace_id, link.span_id) == (batch.trace_id, batch.span_id)
        assert link.attributes["ray.serve.batch.size"] == 3


def is_of_many(span: Span, served: Served) -> bool:
    (batch,) = (each for each in served.spans if each.span_id == span.parent_id)
    return bool(batch.links)


def test_streams_and_errors_of_batches(served: Served) -> None:
    assert served.result["streamed in batches"] == [[0, 1], [1, 2]]
    assert served.result["failed in batches"] == ["'batch'", "'batch'"]
    (counting,) = by_name(served.spans, "Batching.count serve.batch")
    of_batch = [span for span in served.spans if span.trace_id == counting.trace_id]
    assert tree(of_batch) == "Batching.count serve.batch\n  counts 0\n  counts 1"
    (failing,) = by_name(served.spans, "Batching.fail serve.batch")
    assert (failing.attributes["error.type"], len(failing.links)) == ("KeyError", 2)


def test_a_batch_ends_where_serve_gives_up_on_it(served: Served) -> None:
    """It yields fewer results than it has requests. Serve leaves its generator open."""
    assert served.result["miscounted"] == ["miscounted"] * 2
    (batch,) = by_name(served.spans, "Batching.miscount serve.batch")
    assert batch.state == "ended"
    requests = by_name(served.spans, "Batching.miscounted serve.replica")
    assert batch.end_ns <= max(request.end_ns for request in requests)


def test_a_batch_of_one_request_is_below_it(served: Served) -> None:
    assert served.result["batched alone"] == [2, 4, 6]
    assert tree(served.trace_of("alone")) == (
        "alone\n"
        "  Batching.alone serve.remote\n"
        "    Batching.alone serve.replica\n"
        "      Batching.double serve.batch\n"
        "        doubles 3"
    )


def test_a_multiplexed_model_is_named_and_its_loading_is_in_the_request_that_needs_it(served: Served) -> None:
    assert served.result["models"] == ["MODEL", "MODEL"]
    first = served.trace_of("multiplexed 0")
    assert tree(first) == (
        "multiplexed 0\n"
        "  Batching.model serve.remote\n"
        "    Batching.model serve.replica\n"
        "      Batching.load serve.multiplexed\n"
        "        loads model"
    )
    second = served.trace_of("multiplexed 1")
    assert tree(second) == "multiplexed 1\n  Batching.model serve.remote\n    Batching.model serve.replica"
    for span in [*first, *second]:
        if "serve." in span.name:
            assert span.attributes["ray.serve.multiplexed_model_id"] == "model"


def test_those_that_wait_for_a_model_that_another_request_loads_do_not_load_it(served: Served) -> None:
    assert served.result["shared"] == ["SHARED"] * 3
    trees = sorted(tree(served.trace_of(f"sharing {i}")).partition("\n")[2] for i in range(3))
    request = "  Batching.model serve.remote\n    Batching.model serve.replica"
    assert trees == [request, request, f"{request}\n      Batching.load serve.multiplexed\n        loads shared"]


def test_to_make_room_for_a_model_belongs_to_its_loading(served: Served) -> None:
    assert served.result["third"] == "THIRD"
    spans = served.trace_of("third")
    (loading,) = by_name(spans, "Batching.load serve.multiplexed")
    (unloads,) = by_name(spans, "unloads MODEL")
    assert loading.start_ns <= unloads.start_ns < unloads.end_ns <= loading.end_ns


def under(span: Span, root: Span, spans: Sequence[Span]) -> bool:
    parents = {each.span_id: each.parent_id for each in spans}
    above = span.parent_id
    while above and above != root.span_id:
        above = parents.get(above, "")
    return above == root.span_id


def test_what_serve_does_for_itself_makes_no_spans(served: Served) -> None:
    assert served.trace("health") == []
    own = ("ServeController", "ProxyActor", "ServeReplica", "ray.serve")
    assert [span.name for span in served.spans if span.name.startswith(own)] == []


TOLD = {
    "b3": {"b3": f"{1:032x}-{CLIENT}-1"},
    "b3multi": {"X-B3-TraceId": f"{2:032x}", "X-B3-SpanId": CLIENT, "X-B3-Sampled": "1"},
    "jaeger": {"Uber-Trace-Id": f"{3:032x}:{CLIENT}:0:1"},
    "not sampled": {"b3": f"{4:032x}-{CLIENT}-0"},
}
"""Contexts of clients, in other forms than that of the W3C."""


EXPORTER = "serve_exporter:make"


# A server of its own each.
@pytest.mark.parametrize(
    ("options", "in_proxies"),
    [
        pytest.param(
            {"RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH": EXPORTER}, True, marks=pytest.mark.slow(older_rays=True)
        ),
        # Serve tells its proxies nothing of that.
        pytest.param(
            {"TRACING": json.dumps({"enabled": True, "exporter_import_path": EXPORTER})}, False, marks=pytest.mark.slow
        ),
    ],
    ids=["by the environment", "by a configuration"],
)
def test_serves_own_tracing_exports_the_same_spans_and_makes_none_besides(
    tmp_path: Path, options: dict[str, Any], in_proxies: bool
) -> None:
    """Its exporter gets each span once, whatever its sampling ratio, which is one in a hundred. Requests continue the
    traces that the propagators in use read.
    """
    if not text_of_serve("_private/tracing_utils"):
        pytest.skip("this Ray's Serve has no tracing")
    run = run_program(
        "serve_own_tracing",
        json.dumps([*TOLD.values()]),
        RTH_HOOK=HOOK,
        RAY_TRACING_LOCAL_DIR=str(tmp_path / "spans"),
        **with_extras(),
        OTEL_PROPAGATORS="b3multi,jaeger",
        **options,
        EXPORTED=str(tmp_path / "exported"),
    )
    answers, exported = run.result
    assert answers == ["2"] * (1 + len(TOLD))
    spans = [span for span in spans_in(tmp_path / "spans") if not span.name.endswith(" ray.driver")]
    request = (
        "GET /\n"
        "  Outer.__call__ serve.remote\n"
        "    Outer.__call__ serve.replica\n"
        "      user\n"
        "        Inner.__call__ serve.remote\n"
        "          Inner.__call__ serve.replica"
    )
    traces = {name: [span for span in spans if span.trace_id == f"{i:032x}"] for i, name in enumerate(TOLD, 1)}
    assert traces.pop("not sampled") == []
    for name, told in traces.items():
        assert tree(told) == request, name
        assert [span.parent_id for span in told if span.kind == SERVER] == [CLIENT]
    own = [span for span in spans if not any(span in told for told in traces.values())]
    assert tree(own) == f"{request}\nOuter.__init__ serve.replica"
    of_proxies = () if in_proxies else ("GET /", "Outer.__call__ serve.remote")
    assert sorted(exported) == sorted(f"{span.trace_id} {span.name}" for span in spans if span.name not in of_proxies)


@pytest.mark.slow(older_rays=True)  # a server of its own
def test_patterns_are_on_the_deployment_that_takes_a_request(tmp_path: Path) -> None:
    """What is left out has no span at the proxy either, and what is below it stays in the trace of the client."""
    run = run_program(
        "serve_own_tracing",
        json.dumps([{"traceparent": f"00-{1:032x}-{CLIENT}-01"}]),
        RTH_HOOK=HOOK,
        RAY_TRACING_LOCAL_DIR=str(tmp_path / "spans"),
        RAY_TRACING_EXCLUDE="Outer.*",
        **with_extras(),
    )
    assert run.result[0] == ["2", "2"]
    spans = [span for span in spans_in(tmp_path / "spans") if not span.name.endswith(" ray.driver")]
    told = [span for span in spans if span.trace_id == f"{1:032x}"]
    request = "user\n  Inner.__call__ serve.remote\n    Inner.__call__ serve.replica"
    assert tree(told) == tree([span for span in spans if span not in told]) == request
    assert by_name(told, "user")[0].parent_id == CLIENT


@pytest.mark.slow(older_rays=True)  # a server of its own
def test_calls_among_serves_own_actors_make_no_spans_where_requests_do(tmp_path: Path) -> None:
    """Neither where they are made nor where they run, also if Ray's internal tasks and actors make spans."""
    run = run_program(
        "serve_own_tracing",
        RTH_HOOK=HOOK,
        RAY_TRACING_LOCAL_DIR=str(tmp_path / "spans"),
        RAY_TRACING_INTERNAL="1",
        **with_extras(),
    )
    assert run.result[0] == ["2"]
    spans = spans_in(tmp_path / "spans")
    assert by_name(spans, "Outer.__call__ serve.replica")
    of_serve = ("ServeController", "ServeReplica", "ProxyActor", "ray.serve.")
    assert [span.name for span in spans if span.name.startswith(of_serve)] == []


@pytest.mark.slow(older_rays=True)  # a server of its own
def test_serve_alone_can_be_traced_by_its_own_option(tmp_path: Path) -> None:
    """Then the spans are those of Serve's own tracing, with its sampling, and the program's in replicas."""
    if not text_of_serve("_private/tracing_utils"):
        pytest.skip("this Ray's Serve has no tracing")
    folder = tmp_path / "spans"
    run = run_program(
        "serve_own_tracing",
        RAY_TRACING_LOCAL_DIR=str(folder),
        **with_extras(),
        RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH="ray_tracing_hooks.serve:span_processors",
        RAY_SERVE_TRACING_SAMPLING_RATIO="1.0",
    )
    assert run.result[0] == ["2"]
    spans = await_spans(folder, lambda found: len(found) >= 6)
    assert len({span.trace_id for span in spans}) == 1
    assert tree(spans).splitlines()[0].startswith("proxy_http_request ")
    assert {"user", "replica_handle_request Outer __call__", "replica_handle_request Inner __call__"} <= {
        span.name for span in spans
    }
    assert [span for span in spans if span.scope == "ray_tracing_hooks"] == []


@pytest.mark.slow(older_rays=True)  # a server of its own
def test_what_is_replaced_of_serve_is_what_we_say_once_and_goes(tmp_path: Path) -> None:
    """In a driver that has imported all of Serve, so that all of our places are in it, and in a replica: while they are
    traced, after they have gone untraced, when they are traced again, and after the end.
    """
    run = run_program(
        "../inside/serve_undone",
        RAY_TRACING_LOCAL_DIR=str(tmp_path / "spans"),
        PYTHONPATH=path_with(INSIDE, installed.folder("extras")),
    )
    first, second = run.result
    assert sorted(first["changed"]) == sorted(first["patched"]) == sorted(second["patched"])
    assert {*second["patched"]} <= {*second["changed"]}
    for found in (first, second):
        assert found["answers"] == [2, 2, 2]
        assert found["replaced"] == found["again"] == dict.fromkeys(found["patched"], 1)
        # This version of Ray has at least these; anything else that is missing is reported.
        assert {of for of in KNOWN if not any(name.startswith(of) for name in found["patched"])} == set()
        in_replica = found["in replica"]
        assert in_replica.keys() <= found["again in replica"].keys() <= found["replaced"].keys()
        assert {*in_replica.values(), *found["again in replica"].values()} == {1}
        assert any(name.startswith("ray.serve._private.replica.Replica") for name in in_replica)
        assert (found["left"], found["stopped"], found["stopped in replica"]) == ([], {}, {})
        assert found["disconnected"] == {}
    spans = spans_in(tmp_path / "spans")
    for name in ("first", "first again", "second", "second again"):
        (root,) = by_name(spans, name)
        assert tree([span for span in spans if span.trace_id == root.trace_id]) == (
            f"{name}\n  Model.predict serve.remote\n    Model.predict serve.replica"
        )
    assert [span.name for span in spans if span.name.endswith(" untraced")] == []


KNOWN = (
    "ray.serve._private.proxy.GenericProxy proxy_request",
    "ray.serve._private.router.AsyncioRouter assign_request",
    "ray.serve._private.replica.Replica",
    "ray.serve._private.replica.UserCallableWrapper initialize_callable",
    "ray.serve.batching._BatchQueue put",
    "ray.serve.multiplex._ModelMultiplexWrapper __init__",
)
