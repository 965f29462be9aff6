"""Requests to Ray Serve in what the commands show: how long they took, and what their time went to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hand_made import MS, START, HandMade
from hand_served import Served, parts
from recordings import document, recorded, shown

from ray_tracing_hooks import names
from ray_tracing_hooks._cli.summary import document as summary
from ray_tracing_hooks._cli.summary.requests import lines
from ray_tracing_hooks._insight.analysis import recorded as recorded_ways
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import (
    GET_TIME,
    REPLICA_QUEUE,
    REQUEST_DELIVERY,
    RUN,
    UNEXPLAINED,
)
from ray_tracing_hooks._insight.analysis.findings import find
from ray_tracing_hooks._insight.analysis.requests import (
    CALLS,
    CODE,
    DELIVERY,
    LOOP,
    PROXY,
    REPLICA_WAIT,
    SPAN,
    UNRECORDED,
    Requests,
)
from ray_tracing_hooks._insight.model.span import CLIENT, CONSUMER, PRODUCER, SERVER
from ray_tracing_hooks._insight.views.page.content import content
from ray_tracing_hooks._insight.views.redaction import Redaction

# --- real requests ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["serving", "waiting_requests"])
def test_the_parts_of_real_requests_add_up_to_what_they_took(name: str) -> None:
    found = document(name)["requests"]
    assert sum(each["ns"] for each in found["time"]) == found["time_ns"]
    assert sum(each["share"] for each in found["time"]) == pytest.approx(1)
    assert sum(each["slow_share"] for each in found["time"]) == pytest.approx(1)
    assert sum(each["count"] for each in found["routes"]) == found["count"]
    assert all(each["ns"] > 0 for each in found["time"])


def test_the_document_has_routes_and_methods() -> None:
    """Eight requests at a time, and one replica that takes one at a time and 40 ms for it."""
    found = document("waiting_requests")
    first = found["requests"]["time"][0]
    assert (first["kind"], first["name"], first["application"]) == (REPLICA_WAIT, "Scorer.score", "shop")

    (route,) = found["requests"]["routes"]
    assert (route["name"], route["is_handle"], route["count"], route["failed"]) == ("GET /shop", False, 60, 1)
    methods = {each["name"]: each for each in found["requests"]["methods"]}
    assert methods["Scorer.score"]["duration"]["median_ns"] == pytest.approx(40 * MS, rel=0.5)
    assert methods["Scorer.score"]["waited"]["median_ns"] > 100 * MS
    assert (methods["Words.__call__"]["replicas"], methods["Shop.__call__"]["failed"]) == (2, 1)
    assert methods["Words.embed"]["batches"] > 10
    assert methods["Words.embed"]["executions"] == 0


def test_the_section_of_the_summary() -> None:
    text = shown("summary", recorded("waiting_requests"))
    lines = text.splitlines()
    assert "60 requests, 4 calls of 1 function" in lines[0]
    heading = next(number for number, line in enumerate(lines) if line.startswith("Requests to Ray Serve: 60 in "))
    assert lines[heading].endswith(" altogether, 1 failed")
    assert lines[heading + 1].split() == ["REQUEST", "COUNT", "FAILED", "MEDIAN", "P95", "P99", "MAX"]
    assert lines[heading + 2].split()[:4] == ["GET", "/shop", "60", "1"]
    assert "WHERE THE TIME OF REQUESTS WENT" in lines[heading + 4]
    assert lines[heading + 5].startswith(" Scorer.score: waiting for a replica ")
    assert " Words.__call__: its code, or waiting for its batch " in text
    assert " Shop.__call__: its code, or waiting without a span " in text
    assert text.index("Requests to Ray Serve") < text.index("Where the ")


def test_a_program_without_requests_has_no_section() -> None:
    assert document("worker_tree")["requests"] is None
    assert "Requests" not in shown("summary", recorded("worker_tree"))


# --- the page ----------------------------------------------------------------------------------------------------


def page(run: HandMade) -> dict[str, Any]:
    """What the page of these spans shows."""
    return content(Analysis(run.table()), "spans", 1_000, Redaction()).meta


def test_self_times_of_spans_leave_out_what_ran_below_them() -> None:
    """The sum, the median and the longest alike. A call of a deployment is beside its execution, not around it."""
    run = Served()
    for trace, took in ((1, 100), (2, 200), (3, 400)):
        root = run.request(0, took, trace=trace)
        front = run.call(root, "Front.__call__", 5, 5, 10, took - 5, trace=trace)
        run.call(front, "Model.infer", 20, 20, 20, took - 20, trace=trace)
    of = {each["label"]: each for each in page(run)["top"]}
    assert {
        label: (of[label]["count"], *(of[label][key] / MS for key in ("self", "p50", "max")))
        for label in ("GET /", f"Front.__call__ {names.SERVE_REPLICA}", f"Model.infer {names.SERVE_REPLICA}")
    } == {
        "GET /": (3, 45, 15, 15),
        f"Front.__call__ {names.SERVE_REPLICA}": (3, 75, 25, 25),
        f"Model.infer {names.SERVE_REPLICA}": (3, 580, 160, 360),
    }


def calls(run: HandMade) -> dict[tuple[str, str], int]:
    """The calls between functions that the page draws, by caller and callee."""
    drawn = page(run)["graph"]
    labels = [each["label"] for each in drawn["functions"]]
    return {(labels[each["from"]], labels[each["to"]]): each["count"] for each in drawn["calls"]}


def functions(run: HandMade) -> dict[str, tuple[str, int, int]]:
    """Of each function that the page draws the actor class or deployment, the calls that ran, and the instances."""
    return {each["label"]: (each["actor"], each["count"], each["actors"]) for each in page(run)["graph"]["functions"]}


def test_a_call_of_a_deployment_leads_from_its_caller_to_the_method_that_ran() -> None:
    run = Served()
    for trace, replica in ((1, "r1"), (2, "r2")):
        root = run.request(0, 100, trace=trace)
        front = run.call(root, "Front.__call__", 5, 10, 10, 90, replica="front", trace=trace)
        code = run.span("preprocess", 20, 70, front, worker="front", trace=trace)
        run.call(code, "Model.infer", 30, 35, 35, 60, replica=replica, trace=trace)
        run.call(front, "Model.infer", 70, 75, error="TimeoutError", trace=trace)
    assert calls(run) == {("GET /", "Front.__call__"): 2, ("Front.__call__", "Model.infer"): 2}
    assert functions(run) == {"GET /": ("", 2, 0), "Front.__call__": ("Front", 2, 1), "Model.infer": ("Model", 2, 2)}


def test_replicas_and_batches_are_where_their_spans_are() -> None:
    """The start of a replica is a method of the deployment; batches, which serve many requests, are no call of it."""
    run = Served()
    attributes = {names.RAY_SERVE_DEPLOYMENT: "Model", names.RAY_SERVE_REPLICA_ID: "r1"}
    run.span(f"Model.__init__ {names.SERVE_REPLICA}", 0, 10, worker="r1", attributes=attributes, trace=1)
    run.call("", "Model.infer", 20, 20, 20, 90, trace=2)
    run.span(f"Model.infer {names.SERVE_BATCH}", 30, 80, worker="r1", trace=3)
    assert functions(run) == {
        "Model.__init__": ("Model", 1, 1),
        "Model.infer": ("Model", 1, 1),
        f"Model.infer {names.SERVE_BATCH}": ("", 1, 0),
    }
    assert calls(run) == {}


def test_what_serves_a_request_inside_a_replica_is_a_part_of_its_method() -> None:
    """As FastAPI, whose span has the name of the request. What a client or another process sent is another one."""
    run, root = Served.requested(100, route="GET /items/{n}")
    api = run.call(root, "Api.__call__", 5, 10, 10, 90, replica="api")
    served = run.span("GET /items/{n}", 15, 85, api, kind=SERVER, worker="api")
    endpoint = run.span("endpoint", 20, 80, served, worker="api")
    run.call(endpoint, "Model.infer", 30, 35, 35, 60)
    sent = run.span("GET", 60, 70, endpoint, kind=CLIENT, worker="api")
    run.span("GET /stock", 62, 68, sent, kind=SERVER, worker="api")
    run.span("GET /far", 62, 68, endpoint, kind=SERVER, worker="elsewhere")
    assert {label: count for label, (_, count, _) in functions(run).items()} == {
        "GET /items/{n}": 1,
        "Api.__call__": 1,
        "Model.infer": 1,
        "GET /stock": 1,
        "GET /far": 1,
    }
    assert calls(run) == {
        ("GET /items/{n}", "Api.__call__"): 1,
        ("Api.__call__", "Model.infer"): 1,
        ("Api.__call__", "GET /stock"): 1,
        ("Api.__call__", "GET /far"): 1,
    }


def test_a_message_leads_from_the_code_that_sent_it_to_the_code_that_consumed_it() -> None:
    """As libraries for Kafka make spans of them."""
    run, driver = HandMade.driven(100)
    sent = run.span("orders publish", 10, 11, driver, kind=PRODUCER)
    run.span("orders process", 50, 60, sent, kind=CONSUMER, worker="w1")
    root = run.span("news publish", 20, 21, kind=PRODUCER, trace=2)
    run.span("news process", 50, 60, root, kind=CONSUMER, worker="w1", trace=2)
    assert calls(run) == {("job.py", "orders process"): 1, ("news publish", "news process"): 1}
    assert {label: count for label, (_, count, _) in functions(run).items()} == {
        "job.py": 1,
        "orders process": 1,
        "news publish": 1,
        "news process": 1,
    }


def test_a_span_of_the_program_with_the_name_of_a_call_is_one() -> None:
    """It is not part of itself, which would be without end."""
    run, root = Served.requested(100)
    replica = run.call(root, "Front.__call__", 5, 10, 10, 90)
    run.user(replica, f"Audit.log {names.SERVE_CALL}", 20, 50, kind=PRODUCER)
    assert parts(run.found())[UNRECORDED, "Audit.log"] == 40, "from 50 on: where it ended is not recorded"


def test_the_page_of_one_request_says_what_its_time_went_to_and_nothing_of_a_driver() -> None:
    """As the summary does: the critical path of a request is the request."""
    run, root = Served.requested(100, error="500")
    run.call(root, "Front.__call__", 5, 10, 10, 90, error="ValueError")
    shown = page(run)
    assert (shown["path"]["steps"], shown["path"]["by"]) == ([], [])
    assert sum(each["share"] for each in shown["requests"]["time"]) == pytest.approx(1)
    facts = {label: value for label, value, *_ in shown["facts"]}
    assert facts == {"wall time": "100 ms", "requests": "1", "failed requests": "1", "failed spans": "2"}


def test_time_that_requests_explain_is_not_unexplained() -> None:
    """In traces of requests alone, and in a driver that waits for those of its handles."""
    run = Served()
    run.request(0, 50, trace=1)
    run.request(50, 100, trace=2)
    assert "unexplained" not in page(run)["nothing_found"]
    for until, said in ((10_000, False), (7_000, True)):
        run, driver = Served.driven(10_000)
        run.call(driver, "Model.infer", 0, 0, 10, until)
        assert ("(waiting was not recorded and 30 % of the time is unexplained)" in page(run)["nothing_found"]) == said
        assert ("unexplained" in page(run)["nothing_found"]) == said


def test_a_driver_may_wait_for_its_requests_to_a_proxy() -> None:
    """The path goes through them, as far as they were open. A wait of the driver that ended later comes first."""
    run, driver = Served.driven(10_000, parts="actor,get,serve,task,wait")
    task = run.task(driver, "t", 8_500, 8_600, 9_000, worker="w1")
    run.get(driver, [task], 8_510, 9_000)
    for trace, (start, waited, end) in enumerate(((1_000, 3_900, 4_000), (3_000, 4_900, 5_000), (8_000, 8_005, 9_500))):
        request = run.request(start, end, trace=trace + 2)
        run.call(request, "Llm.ask", start, waited, waited, end, caller="proxy", trace=trace + 2)
    analysis = Analysis(run.table())
    path = analysis.split
    found = {name: time / MS for name, time in path.functions.items()}
    assert found == {"job.py": 1_000 + 3_000 + 500, "Llm.ask": 100 + 495 + 500, "t": 400}
    assert {kind: path.kinds[kind] / MS for kind in (REPLICA_QUEUE, UNEXPLAINED)} == {
        REPLICA_QUEUE: 2_000 + 1_900 + 5,
        UNEXPLAINED: 0,
    }
    said = recorded_ways.certainty(analysis.calls, path)
    assert (path.is_exact, "may have waited for requests to a proxy of Ray Serve" in said) == (False, True)
    (finding,) = (each for each in find(analysis) if each.kind == "waiting-for-replicas")
    assert finding.share == pytest.approx(0.39, abs=0.001)


# --- one request --------------------------------------------------------------------------------------------------


def test_the_time_of_a_request_is_split_by_what_it_waited_for() -> None:
    """In the proxy, for a replica, until that began, its code, and so on for what it called."""
    run, root = Served.requested(100)
    gate = run.call(root, "Gate.__call__", 5, 15, 18, 95)
    run.call(gate, "Model.infer", 20, 50, 52, 80)
    assert parts(run.found()) == {
        (PROXY, "GET /"): 5 + 5,
        (REPLICA_WAIT, "Gate.__call__"): 10,
        (DELIVERY, "Gate.__call__"): 3,
        (CODE, "Gate.__call__"): 2 + 15,
        (REPLICA_WAIT, "Model.infer"): 30,
        (DELIVERY, "Model.infer"): 2,
        (CODE, "Model.infer"): 28,
    }


def test_what_is_no_choice_of_a_replica_is_no_wait_for_one() -> None:
    """The router may be busy, or the request may be large."""
    run, root = Served.requested(100)
    run.call(root, "Gate.__call__", 0, 50, 60, 100, choice=20)
    run.call(root, "Gate.fast", 0, 0, 0, 0)
    assert parts(run.found()) == {
        (REPLICA_WAIT, "Gate.__call__"): 20,
        (DELIVERY, "Gate.__call__"): 40,
        (CODE, "Gate.__call__"): 40,
    }


def test_a_call_with_the_result_of_another_as_its_argument_waited_for_that() -> None:
    """As in ``second.remote(first.remote(x))``: the router resolves arguments before it chooses a replica."""
    run, gate = Served.gated(100)
    run.call(gate, "First.go", 10, 15, 15, 60)
    run.call(gate, "Second.go", 11, 70, 72, 90, choice=5)
    assert parts(run.found()) == {
        (CODE, "Gate.__call__"): 10 + 10,
        (REPLICA_WAIT, "First.go"): 5,
        (CODE, "First.go"): 45,
        (REPLICA_WAIT, "Second.go"): 5,
        (DELIVERY, "Second.go"): 7,
        (CODE, "Second.go"): 18,
    }


def test_a_call_that_waited_for_a_replica_did_not_wait_for_what_ended_meanwhile() -> None:
    run, gate = Served.gated(100)
    run.call(gate, "Fast.go", 10, 10, 10, 50)
    run.call(gate, "Full.go", 10, 70, 70, 90, choice=59)
    assert parts(run.found()) == {
        (CODE, "Gate.__call__"): 10 + 10,
        (REPLICA_WAIT, "Full.go"): 59,
        (DELIVERY, "Full.go"): 1,
        (CODE, "Full.go"): 20,
    }


def test_a_replica_that_is_chosen_before_the_call_is_waited_for() -> None:
    """As with ``choose_replica`` and ``dispatch``."""
    run, gate = Served.gated(100)
    attributes = {names.RAY_SERVE_APPLICATION: "app", names.RAY_SERVE_DEPLOYMENT: "Model"}
    run.span(f"Model.infer {names.SERVE_CHOICE}", 10, 40, gate, worker="r1", attributes=attributes)
    run.call(gate, "Model.infer", 40, 40, 42, 80)
    assert parts(run.found()) == {
        (CODE, "Gate.__call__"): 10 + 20,
        (REPLICA_WAIT, "Model.infer"): 30,
        (DELIVERY, "Model.infer"): 2,
        (CODE, "Model.infer"): 38,
    }


def test_a_replica_may_end_shortly_after_its_result_was_used() -> None:
    """It sends the result before it ends its span."""
    run, gate = Served.gated(100)
    run.call(gate, "First.go", 0, 0, 0, 53)
    run.call(gate, "Second.go", 50, 50, 50, 100)
    assert parts(run.found()) == {(CODE, "First.go"): 50, (CODE, "Second.go"): 50}


def test_of_calls_at_the_same_time_it_waited_for_the_last_to_end() -> None:
    run, gate = Served.gated(100)
    run.call(gate, "Fast.go", 10, 10, 10, 40)
    run.call(gate, "Slow.go", 10, 10, 10, 90)
    run.call(gate, "Before.go", 2, 2, 2, 10)
    assert parts(run.found()) == {
        (CODE, "Gate.__call__"): 2 + 10,
        (CODE, "Slow.go"): 80,
        (CODE, "Before.go"): 8,
    }


def test_what_goes_on_after_the_end_of_a_request_does_not_count() -> None:
    """As where the client has gone."""
    run, root = Served.requested(50)
    gate = run.call(root, "Gate.__call__", 0, 0, 0, 80)
    run.call(gate, "Model.infer", 40, 40, 40, 70)
    assert parts(run.found()) == {(CODE, "Gate.__call__"): 40, (CODE, "Model.infer"): 10}


def test_what_outlives_its_caller_was_not_waited_for() -> None:
    run, gate = Served.gated(100)
    run.call(gate, "Model.infer", 10, 10, 10, 60)
    run.call(gate, "Log.write", 40, 40, 40, 200)
    run.task(gate, "store", 40, 40, 150, worker="w1")
    assert parts(run.found()) == {(CODE, "Gate.__call__"): 50, (CODE, "Model.infer"): 50}


def test_a_caller_that_was_cancelled_waited_for_what_outlived_it() -> None:
    run, root = Served.requested(100, error="408")
    gate = run.call(root, "Gate.__call__", 0, 0, 0, 100, error="TaskCancelledError")
    run.spans[-1].status_code = 0
    run.call(gate, "Model.infer", 10, 10, 10, 200)
    assert parts(run.found()) == {(CODE, "Gate.__call__"): 10, (CODE, "Model.infer"): 90}


def test_a_call_that_no_replica_has_accepted_waited_until_its_end() -> None:
    run, root = Served.requested(100, error="TimeoutError")
    run.call(root, "Gate.__call__", 10, 100, error="TimeoutError")
    found = run.found()
    assert parts(found) == {(PROXY, "GET /"): 10, (REPLICA_WAIT, "Gate.__call__"): 90}
    assert (found.count, found.failed) == (1, 1)
    (method,) = found.methods
    assert (method.executions, method.failed, list(method.waited)) == (0, 1, [])


def test_a_call_that_gave_up_before_it_was_sent_did_not_wait_for_a_replica() -> None:
    """Such as while its arguments were made: no choice was begun."""
    run, root = Served.requested(100, error="499")
    run.call(root, "Gate.__call__", 10, 100, error="TaskCancelledError", choice=0)
    assert parts(run.found()) == {(PROXY, "GET /"): 10, (DELIVERY, "Gate.__call__"): 90}


def test_where_several_replicas_were_tried_the_last_one_ran_it() -> None:
    run, root = Served.requested(100)
    made = run.call(root, "Gate.__call__", 0, 60)
    attributes = {names.RAY_SERVE_APPLICATION: "app", names.RAY_SERVE_REPLICA_ID: "r"}
    run.span("Gate.__call__ serve.replica", 10, 20, made, kind=CONSUMER, attributes=attributes, error="ActorDiedError")
    run.span("Gate.__call__ serve.replica", 60, 100, made, kind=CONSUMER, attributes=attributes)
    found = run.found()
    assert parts(found) == {(REPLICA_WAIT, "Gate.__call__"): 60, (CODE, "Gate.__call__"): 40}
    assert [(each.executions, each.failed) for each in found.methods] == [(2, 1)]


def test_what_no_span_of_a_replica_tells_is_not_said_to_be_time_in_the_proxy() -> None:
    """As where the spans of the replica's node are missing."""
    run, root = Served.requested(100)
    run.call(root, "Gate.__call__", 5, 15)
    assert parts(run.found()) == {
        (PROXY, "GET /"): 5,
        (REPLICA_WAIT, "Gate.__call__"): 10,
        (UNRECORDED, "Gate.__call__"): 85,
    }


def test_a_call_without_a_replica_ended_before_the_next_one_of_its_caller_at_the_latest() -> None:
    run, gate = Served.gated(100)
    run.call(gate, "First.go", 10, 12)
    run.call(gate, "First.go", 10, 12)
    run.call(gate, "Second.go", 50, 50, 50, 90)
    assert parts(run.found()) == {
        (CODE, "Gate.__call__"): 10 + 10,
        (REPLICA_WAIT, "First.go"): 2,
        (UNRECORDED, "First.go"): 38,
        (CODE, "Second.go"): 40,
    }


def test_a_replica_that_dies_has_run_until_its_caller_learned_of_that() -> None:
    """When it died is not recorded, only when its process last recorded a span."""
    run, root = Served.requested(100, error="500")
    run.call(root, "Gate.__call__", 0, 0, 10, 10)
    run.spans[-1].state, run.spans[-1].end_ns = "lost", 0
    found = run.found()
    assert parts(found) == {(DELIVERY, "Gate.__call__"): 10, (CODE, "Gate.__call__"): 90}
    assert [(each.executions, each.failed, list(each.durations)) for each in found.methods] == [(1, 1, [])]


def test_calls_by_handles_without_a_replica_are_counted_and_nothing_else() -> None:
    """How long they took is not known."""
    run, driver = Served.driven(100)
    run.call(driver, "Gate.__call__", 0, 5)
    run.call(driver, "Gate.__call__", 0, 10, 10, 50)
    run.call(driver, "Gate.__call__", 0, 20, error="TimeoutError")
    found = run.found()
    assert (found.count, found.unrecorded, found.failed) == (2, 1, 1)
    assert [list(each.durations) for each in found.routes] == [[20 * MS, 50 * MS]]
    assert "Requests to Ray Serve: 2 in 70.0 ms altogether, 1 failed, and 1 whose end is not recorded" in list(
        lines(found)
    )


def test_a_request_that_reaches_a_replica_directly_is_its_code() -> None:
    run = Served()
    attributes = {
        names.RAY_SERVE_APPLICATION: "app",
        names.RAY_SERVE_DEPLOYMENT: "Gate",
        names.RAY_SERVE_METHOD: "__call__",
        names.RAY_SERVE_REPLICA_ID: "r1",
    }
    run.span("GET /", 0, 30, kind=SERVER, worker="r1", attributes=attributes)
    found = run.found()
    assert parts(found) == {(CODE, "Gate.__call__"): 30}
    assert [(each.name, each.executions, each.replicas) for each in found.methods] == [("Gate.__call__", 1, 1)]
    assert [each.name for each in found.routes] == ["GET /"]


def test_the_choice_of_a_replica_for_haproxy_is_part_of_its_request(tmp_path: Path) -> None:
    """The router's span is the parent of a request, or linked where the client has a trace of its own."""
    run = Served()

    def named(deployment: str) -> dict[str, Any]:
        return {
            names.RAY_SERVE_APPLICATION: "app",
            names.RAY_SERVE_DEPLOYMENT: deployment,
            names.RAY_SERVE_METHOD: "__call__",
            names.RAY_SERVE_REPLICA_ID: deployment,
        }

    for trace, client in ((1, False), (2, True)):
        router = f"Router.__call__ {names.SERVE_ROUTE}"
        route = run.span(router, 0, 12, worker="router", attributes=named("Router"), trace=trace)
        run.call(route, "Tokens.count", 1, 2, 2, 4, trace=trace)
        chosen = named("Model") | {names.RAY_SERVE_CHOICE_TIME: 0.011}
        root = run.span(
            "POST /v1/chat",
            15,
            45,
            "" if client else route,
            kind=SERVER,
            worker="r1",
            attributes=chosen,
            trace=trace + 10 * client,
        )
        run.call(root, "Tokens.count", 20, 21, 21, 30, trace=trace + 10 * client)
    found = run.found()
    assert [(each.name, list(each.durations)) for each in found.routes] == [("POST /v1/chat", [41 * MS] * 2)]
    assert parts(found) == {
        (REPLICA_WAIT, "Model.__call__"): 22,
        (CODE, "Model.__call__"): 40,
        (REPLICA_WAIT, "Tokens.count"): 2,
        (CODE, "Tokens.count"): 18,
    }
    assert {each.name: each.executions for each in found.methods} == {
        "Model.__call__": 2,
        "Router.__call__": 2,
        "Tokens.count": 4,
    }
    (tmp_path / "spans.jsonl").write_bytes(run.as_json_lines())
    assert shown("summary", str(tmp_path), "--trace", f"{1:032x}").startswith("POST /v1/chat took 45.0 ms ")


def test_a_call_by_a_handle_is_a_request_if_it_is_in_no_other() -> None:
    run, driver = Served.driven(100)
    gate = run.call(driver, "Gate.__call__", 10, 20, 25, 60)
    run.call(gate, "Model.infer", 30, 30, 30, 50)
    found = run.found()
    assert [(each.name, each.is_handle, list(each.durations)) for each in found.routes] == [
        ("Gate.__call__", True, [50 * MS])
    ]
    assert sum(parts(found).values()) == 50


def test_the_summary_of_one_request_does_not_call_all_of_it_code(tmp_path: Any) -> None:
    run, root = Served.requested(100)
    run.call(root, "Gate.__call__", 0, 90, 90, 100)
    (tmp_path / "spans.jsonl").write_bytes(run.as_json_lines())
    text = shown("summary", str(tmp_path))
    assert text.startswith("GET / took 100 ms")
    assert re.search(r"Gate.__call__: waiting for a replica +90 % ", text)
    assert "running code" not in text
    assert "along the critical path" not in text


# --- in the code of a deployment ---------------------------------------------------------------------------------


def spans_of(found: Requests) -> dict[tuple[str, str, str], float]:
    """The same as ``parts``, by span too."""
    return {(each.kind, each.name, each.span): each.time / MS for each in found.parts}


def test_spans_of_the_program_take_their_time_from_the_code_of_a_deployment() -> None:
    """Each the time in which none of its own was open, and what it called."""
    run, gate = Served.gated(100)
    lookup = run.user(gate, "cache lookup", 10, 90)
    run.user(lookup, "parse", 20, 30)
    run.call(lookup, "Prices.price", 50, 50, 50, 80, replica="p1", caller="r1")
    found = run.found()
    assert spans_of(found) == {
        (CODE, "Gate.__call__", ""): 20,
        (SPAN, "Gate.__call__", "cache lookup"): 80 - 10 - 30,
        (SPAN, "Gate.__call__", "parse"): 10,
        (CODE, "Prices.price", ""): 30,
    }
    assert "Gate.__call__: its span cache lookup" in [found.described(each) for each in found.parts]
    told = summary.document(Analysis(run.table()))["requests"]["time"]
    assert {each.get("span") for each in told} == {None, "cache lookup", "parse"}
    assert sum(each["ns"] for each in told) == 100 * MS


def test_a_call_that_was_begun_in_a_span_and_outlasts_it_was_waited_for_around_it() -> None:
    run, gate = Served.gated(100)
    asks = run.user(gate, "ask", 10, 20)
    run.call(asks, "Prices.price", 15, 15, 15, 90, replica="p1", caller="r1")
    assert spans_of(run.found()) == {
        (CODE, "Gate.__call__", ""): 20,
        (SPAN, "Gate.__call__", "ask"): 5,
        (CODE, "Prices.price", ""): 75,
    }


def test_spans_of_the_program_in_tasks_are_no_parts_of_a_deployments_code() -> None:
    run, gate = Served.gated(100)
    resize = run.run(run.submit(gate, "resize", 10, worker="r1"), 20, 60)
    run.user(resize, "inside", 30, 40, worker="w1")
    assert spans_of(run.found()) == {(CODE, "Gate.__call__", ""): 50, (CALLS, "resize", ""): 50}


def test_waiting_for_an_event_loop_is_no_code() -> None:
    run, root = Served.requested(100)
    run.call(root, "Gate.__call__", 0, 0, 0, 100, loop=70)
    assert parts(run.found()) == {(LOOP, "Gate.__call__"): 70, (CODE, "Gate.__call__"): 30}


def many(slow: int, long: float = 100) -> Served:
    """A hundred requests of 10 ms, but for some that are slow since a span of theirs takes long."""
    run = Served()
    for number in range(100):
        took = long if number < slow else 10
        root = run.request(0, took, trace=number + 1)
        gate = run.call(root, "Gate.__call__", 0, 0, 0, took, trace=number + 1)
        run.user(gate, "cache lookup", 0, took - 1, worker="r1", trace=number + 1)
    return run


def test_what_distinguishes_the_slowest_requests_is_named() -> None:
    (found,) = find(Analysis(many(5).table()))
    assert found.kind == "slow-requests"
    assert found.text == (
        "the slowest 5 % of 100 requests took 100 ms on average, the others 10.0 ms: 100 % of the difference is "
        "Gate.__call__: its span cache lookup (99.0 ms instead of 9.00 ms)"
    )
    assert len(found.rows) == 5


@pytest.mark.parametrize("run", [many(1), many(5, long=15)], ids=["one request alone", "not much slower"])
def test_slow_requests_without_much_in_common_are_no_finding(run: Served) -> None:
    assert find(Analysis(run.table())) == []


def test_few_requests_have_no_slowest_ones_in_common() -> None:
    run = many(5)
    run.spans = run.spans[: 99 * 4]
    assert find(Analysis(run.table())) == []


def test_one_exception_of_a_request_counts_once() -> None:
    """Where it was raised, however many deployments and waits it has passed through."""
    run = Served()
    run.parts = "serve,get,wait"
    root = run.request(0, 100, error="500")
    shop = run.call(root, "Shop.__call__", 0, 0, 0, 100, error="ValueError")
    prices = run.call(shop, "Prices.price", 10, 10, 10, 90, replica="p1", caller="r1", error="ValueError")
    run.call(prices, "Rates.rate", 20, 20, 20, 80, replica="q1", caller="p1", error="ValueError")
    run.get(prices, ["00" * 28], 20, 80, worker="p1", error="ValueError")
    (found,) = find(Analysis(run.table()))
    assert (found.kind, found.text) == ("failed-spans", "1 span of Rates.rate serve.replica failed: ValueError")


# --- requests that a driver waits for -----------------------------------------------------------------------------


def object_of(call: int, index: int = 2) -> str:
    """What a call of a replica returns: the first object is whether it accepts the request, the second the result."""
    return f"{call:048x}" + index.to_bytes(4, "little").hex()


def waiting_driver(**more: Any) -> Served:
    """A driver that waits for a request, which waits for a replica and then for another deployment."""
    run, driver = Served.driven(100, parts="serve,get,wait")
    front = run.call(driver, "Front.__call__", 10, 30, 32, 90, choice=18, object_id=object_of(1), **more)
    run.call(front, "Slow.go", 35, 40, 40, 85, choice=5, replica="s1", caller="r1", object_id=object_of(34))
    run.get(front, [object_of(34)], 36, 86, worker="r1")
    run.get(driver, [object_of(1, 1)], 11, 31)  # until a replica accepts it
    run.get(driver, [object_of(1)], 31, 91)
    return run


def test_the_path_goes_through_the_requests_that_a_driver_waits_for() -> None:
    run = waiting_driver()
    analysis = Analysis(run.table())
    path = analysis.path
    steps = [(each.kind, (each.start - START) // MS, (each.end - START) // MS) for each in path.steps]
    assert steps == [
        (RUN, 0, 10),
        (REPLICA_QUEUE, 10, 28),
        (REQUEST_DELIVERY, 28, 32),
        (RUN, 32, 35),
        (REPLICA_QUEUE, 35, 40),
        (RUN, 40, 85),
        (GET_TIME, 85, 86),
        (RUN, 86, 90),
        (GET_TIME, 90, 91),
        (RUN, 91, 100),
    ]
    assert {name: time // MS for name, time in path.functions.items()} == {
        "job.py": 19,
        "Front.__call__": 7,
        "Slow.go": 45,
    }
    assert path.coverage == 1
    assert not path.is_exact, "a replica may wait without a span"
    assert recorded_ways.unseen_objects(analysis) == 0
    assert {each.kind for each in find(analysis)} <= {"waiting-for-replicas"}


def test_the_path_goes_through_what_kept_a_replica_busy() -> None:
    """The split of the time stays with the request that waited."""
    run, driver = Served.driven(100, parts="serve,get,wait")
    for number in range(3):
        begun = 10 + 25 * number
        object_id = object_of(number)
        run.call(driver, "Gate.__call__", 5, begun, begun, begun + 25, object_id=object_id)
    run.get(driver, [object_of(2)], 6, 86)
    analysis = Analysis(run.table())
    assert {name: time // MS for name, time in analysis.path.functions.items()} == {
        "job.py": 5 + 14,
        "Gate.__call__": 75,
    }
    assert {kind: time // MS for kind, time in analysis.split.kinds.items() if time} == {
        RUN: 5 + 25 + 14,
        REPLICA_QUEUE: 55,
        GET_TIME: 1,
    }


def test_waiting_for_replicas_costs_what_the_driver_waited_for_them() -> None:
    """A server waits for no request, so there it costs nothing."""
    run, driver = Served.driven(500, parts="serve,get,wait")
    for number in range(12):
        begun = 10 + 25 * number
        run.call(driver, "Gate.__call__", 5, begun, begun, begun + 25, object_id=object_of(number))
    run.get(driver, [object_of(11)], 6, 311)
    (found,) = (each for each in find(Analysis(run.table())) if each.kind == "waiting-for-replicas")
    assert found.share == pytest.approx((10 + 25 * 11 - 5) / 500)
    served = Served()
    for number in range(12):
        root = served.request(0, 100, trace=number + 1)
        served.call(root, "Gate.__call__", 0, 60, 60, 100, trace=number + 1)
    (found,) = (each for each in find(Analysis(served.table())) if each.kind == "waiting-for-replicas")
    assert found.share == 0


def test_the_path_goes_through_what_kept_an_event_loop() -> None:
    run, driver = Served.driven(100, parts="serve,get,wait")
    for number in range(3):
        # All are accepted at once; results are sent when the loop is idle.
        object_id = object_of(number)
        run.call(driver, "Gate.__call__", 5, 5, 10, 85, loop=25 * number, object_id=object_id)
    run.get(driver, [object_of(2)], 6, 86)
    path = Analysis(run.table()).path
    assert {name: time // MS for name, time in path.functions.items()} == {"job.py": 5 + 14, "Gate.__call__": 75}


def test_a_request_whose_argument_is_another_waits_for_that() -> None:
    run, driver = Served.driven(200, parts="serve,get,wait")
    run.call(driver, "First.go", 10, 10, 10, 80, choice=0, object_id=object_of(1))
    run.call(driver, "Second.go", 11, 90, 92, 150, choice=5, replica="r2", object_id=object_of(2))
    run.get(driver, [object_of(2)], 12, 151)
    path = Analysis(run.table()).path
    assert {name: time // MS for name, time in path.functions.items()} == {
        "job.py": 10 + 49,
        "First.go": 70,
        "Second.go": 58,
    }


@pytest.mark.parametrize("over_http", [False, True])
def test_the_code_of_a_driver_between_its_requests_is_named(over_http: bool) -> None:
    """Unless there are requests of others: it may wait for one of these without a span."""
    run, driver = Served.driven(5_000, parts="serve,get,wait")
    for number in range(8):
        at = 1_000 + 400 * number
        run.call(driver, "Gate.__call__", at, at, at + 1, at + 5, object_id=object_of(number))
        run.get(driver, [object_of(number)], at + 2, at + 6)
    if over_http:
        run.call(run.request(1_500, 1_600, trace=2), "Gate.__call__", 1_510, 1_510, 1_510, 1_590, trace=2)
    found = {each.kind: each for each in find(Analysis(run.table()))}
    assert ("driver-code" in found) != over_http
    if not over_http:
        assert found["driver-code"].share == pytest.approx(7 * 0.394 / 5, abs=0.01)


@pytest.mark.parametrize("parts_of_ray", ["serve", "serve,get,wait"], ids=["no waits", "calls by gRPC"])
def test_without_recorded_waits_a_driver_is_assumed_to_wait_for_its_requests(parts_of_ray: str) -> None:
    run, driver = Served.driven(100, parts=parts_of_ray)
    run.call(driver, "Gate.__call__", 5, 5, 10, 85)
    path = Analysis(run.table()).path
    assert path.functions["Gate.__call__"] == 75 * MS
    assert not path.is_recorded


def test_no_setting_is_advised_that_shows_nothing_of_ray_serve() -> None:
    """Its controller makes no spans, so a driver that waits for it waits for what is not recorded."""
    run, driver = Served.driven(100, parts="serve,get,wait")
    run.get(driver, [object_of(56)], 5, 70)
    run.call(driver, "Gate.__call__", 71, 71, 72, 80)
    (found,) = [each for each in find(Analysis(run.table())) if each.kind == "unrecorded"]
    assert "(such as those of Ray Serve's controller)" in found.text
    assert "RAY_TRACING_INTERNAL" not in found.advice


def test_a_run_that_serves_requests_leads_with_them(tmp_path: Path) -> None:
    run = Served()
    run.driver(0, 1000)
    for number in range(2):
        root = run.request(100, 150, trace=number + 2)
        run.call(root, "Gate.__call__", 100, 100, 100, 150, trace=number + 2, caller="proxy")
    run.session = "session_1"
    analysis = Analysis(run.table())
    assert analysis.serves
    assert page(run)["serves"]
    (tmp_path / "spans.jsonl").write_bytes(run.as_json_lines())
    lines = shown("summary", str(tmp_path)).splitlines()
    assert lines[0].startswith("2 requests to Ray Serve within 1.00 s")
    assert any(line.startswith("Where the 1.00 s of job.py went") for line in lines)


def test_a_program_with_a_request_among_its_calls_leads_with_its_driver() -> None:
    run = waiting_driver()
    for number in range(3):
        run.task(run.spans[0].span_id, "t", number, 5, 6)
    assert not Analysis(run.table()).serves


def test_executions_in_replicas_run_at_once_and_not_what_calls_them_or_waits() -> None:
    run = waiting_driver()
    shown_strip = page(run)["strip"]
    assert max(shown_strip) == 1
    assert page(run)["executions"] == 2


# --- many requests ------------------------------------------------------------------------------------------------


def test_requests_without_a_driver_are_summed_up(tmp_path: Any) -> None:
    """As where an application is deployed by a configuration, and serves until it is replaced."""
    run = Served()
    run.session = "session_1"
    for number in range(30):
        root = run.request(100 * number, 100 * number + 50, trace=number + 1)
        run.call(root, "Gate.__call__", 100 * number, 100 * number, 100 * number, 100 * number + 50, trace=number + 1)
    (tmp_path / "spans.jsonl").write_bytes(run.as_json_lines())
    first, *_ = shown("summary", str(tmp_path)).splitlines()
    assert first.startswith("30 requests to Ray Serve within 2.95 s")


def test_the_slowest_requests_are_looked_at_on_their_own() -> None:
    """Nineteen of twenty spend their time in code; the slowest one waits."""
    run = Served()
    for number in range(19):
        root = run.request(0, 10, trace=number + 1)
        run.call(root, "Gate.__call__", 0, 0, 0, 10, trace=number + 1)
    root = run.request(0, 100, trace=20)
    run.call(root, "Gate.__call__", 0, 95, 95, 100, trace=20)
    found = run.found()
    assert found.slow == 1
    assert {(each.kind): each.slow_time / MS for each in found.parts} == {REPLICA_WAIT: 95, CODE: 5}
    run.spans.pop()
    run.spans = run.spans[2:]
    assert run.found().slow == 0, "too few to tell"


def test_requests_that_have_not_ended_are_counted_and_nothing_else() -> None:
    run = Served()
    run.request(0, 10)
    root = run.request(0, None, trace=2)
    run.call(root, "Gate.__call__", 0, 5, 5, None, trace=2)
    found = run.found()
    assert (found.count, found.running) == (1, 1)
    assert sum(parts(found).values()) == 10
    assert found.methods[0].executions == 0


def test_only_a_request_that_is_running() -> None:
    run = Served()
    run.request(0, None)
    assert list(lines(run.found())) == [
        "",
        "Requests to Ray Serve: 0 in 0.00 us altogether, and 1 that has not ended",
    ]
    assert summary.document(Analysis(run.table()))["requests"]["running"] == 1


def test_a_request_that_took_no_time() -> None:
    run = Served()
    run.request(0, 0)
    assert summary.document(Analysis(run.table()))["requests"]["time"] == []
    assert not any("WHERE" in str(line) for line in lines(run.found()))


def test_methods_of_one_name_in_two_applications_are_told_apart() -> None:
    run = Served()
    for number, application in enumerate(("first", "second"), 1):
        root = run.request(0, 10 * number, trace=number, route=f"GET /{application}")
        run.call(root, "Gate.__call__", 0, 0, 0, 10 * number, trace=number, application=application)
    found = run.found()
    assert [found.full_name(each) for each in found.methods] == ["Gate.__call__ (second)", "Gate.__call__ (first)"]
    assert [found.full_name(each) for each in found.routes] == ["GET /second", "GET /first"]


def test_servers_of_other_libraries_are_no_requests() -> None:
    """A span of kind SERVER by an instrumentation of the application is a part of its replica's code."""
    run, gate = Served.gated(10)
    run.span("GET /inner", 1, 9, gate, kind=SERVER, worker="r1")
    run.spans[-1].scope = "opentelemetry.instrumentation.fastapi"
    assert parts(run.found()) == {(CODE, "Gate.__call__"): 10}


def test_a_short_wait_for_replicas_is_no_finding() -> None:
    """Ray Serve takes some milliseconds to hand over a request, which may be most of a short one."""
    run = Served()
    for number in range(20):
        root = run.request(0, 8, trace=number + 1)
        run.call(root, "Gate.__call__", 0, 6, 6, 8, trace=number + 1)
    analysis = Analysis(run.table())
    assert "waiting-for-replicas" not in {each.kind for each in find(analysis)}


@pytest.mark.parametrize(("choice", "is_found"), [(90, True), (18, False), (0, False)])
def test_deployments_whose_replicas_were_free_are_no_finding(choice: float, is_found: bool) -> None:
    """Requests may also wait for their arguments, or for a busy router, such as in a burst."""
    run = Served()
    for number in range(20):
        root = run.request(0, 110, trace=number + 1)
        run.call(root, "Gate.__call__", 0, 95, 100, 110, trace=number + 1, choice=choice)
    assert ("waiting-for-replicas" in {each.kind for each in find(Analysis(run.table()))}) == is_found


@pytest.mark.parametrize("choice", [-1.0, float("nan"), "long", 1e300])
def test_a_choice_of_a_replica_that_took_an_impossible_time_is_none(choice: Any, tmp_path: Any) -> None:
    run, root = Served.requested(100)
    run.call(root, "Gate.__call__", 0, 50, 50, 100)
    run.spans[1].attributes[names.RAY_SERVE_CHOICE_TIME] = choice
    (tmp_path / "spans.jsonl").write_bytes(run.as_json_lines())
    found = json.loads(shown("summary", str(tmp_path), "--json"))["requests"]["time"]
    assert {each["kind"]: each["ns"] for each in found} == {DELIVERY: 50 * MS, CODE: 50 * MS}


# --- damaged and hostile spans ------------------------------------------------------------------------------------


def test_a_route_that_ends_like_a_call_is_a_request() -> None:
    run, root = Served.requested(100, route="GET /about serve.remote")
    run.call(root, "Gate.__call__", 10, 10, 10, 100)
    found = run.found()
    assert [(each.name, each.is_handle) for each in found.routes] == [("GET /about serve.remote", False)]
    assert parts(found) == {(PROXY, "GET /about serve.remote"): 10, (CODE, "Gate.__call__"): 90}


def test_no_time_is_negative_where_clocks_differ() -> None:
    """The replica's clock is so late that it seems to have ended before it was called."""
    run, driver = Served.driven(1000)
    run.call(driver, "Gate.__call__", 500, 510, 100, 200)
    found = run.found()
    assert [list(each.durations) for each in found.routes] == [[0]]
    assert all(each.time >= 0 for each in found.parts)


def test_times_that_exceed_64_bits_together() -> None:
    run = Served()
    for number in range(4):
        root = run.request(0, 10, trace=number + 1)
        run.call(root, "Gate.__call__", 0, 0, 0, 10, trace=number + 1)
    for span in run.spans:
        span.start_ns, span.end_ns = 1, (1 << 63) - 1
    found = run.found()
    assert found.time == 4 * ((1 << 63) - 2)


def test_only_deployments_with_batches_are_said_to_wait_for_them() -> None:
    """Names of deployments may have dots."""
    run = Served()
    for name in ("my.words", "my.prices"):
        root = run.request(0, 10)
        run.call(root, f"{name}.__call__", 0, 0, 0, 10)
    attributes = {names.RAY_SERVE_APPLICATION: "app", names.RAY_SERVE_DEPLOYMENT: "my.words"}
    run.span("my.words.embed serve.batch", 0, 10, worker="r1", attributes=attributes)
    found = run.found()
    assert {each.name: "batch" in found.described(each) for each in found.parts} == {
        "my.words.__call__": True,
        "my.prices.__call__": False,
    }


@pytest.mark.parametrize(("runs", "is_idle"), [(5, True), (800, False)])
def test_batches_that_wait_while_none_runs_are_a_finding(runs: float, is_idle: bool) -> None:
    """One client, whose requests wait for companions; or two, whose batches wait for each other."""
    run = Served()
    for number in range(8):
        begin = 810 * number
        root = run.request(begin, begin + 810, trace=number + 1)
        run.call(root, "Model.__call__", begin, begin, begin, begin + 810, trace=number + 1)
        attributes = {
            names.RAY_SERVE_APPLICATION: "app",
            names.RAY_SERVE_DEPLOYMENT: "Model",
            names.RAY_SERVE_BATCH_SIZE: 1,
            names.RAY_SERVE_BATCH_WAIT: 0.8,
        }
        run.span(
            f"Model.predict {names.SERVE_BATCH}", begin + 801, begin + 801 + runs, worker="r1", attributes=attributes
        )
    found = [each for each in find(Analysis(run.table())) if each.kind == "waiting-for-batches"]
    assert bool(found) == is_idle
    for each in found:
        assert each.title == "Requests wait for batches of Model.predict to fill"
        assert "Model.predict waited 800 ms until the batch began, while no other one ran" in each.text
        assert "has 1 request, and takes 5.00 ms (medians of 8 batches)" in each.text
        assert each.requests_share == pytest.approx(800 / 810)


def test_calls_that_a_task_makes_are_a_part_of_the_task() -> None:
    """Also those that go on after it."""
    run, gate = Served.gated(100)
    task = run.submit(gate, "resize", 10)
    resize = run.run(task, 20, 60)
    run.run(run.submit(resize, "store", 50, worker="w1"), 55, 95, worker="w2")
    run.call(resize, "Model.infer", 50, 50, 50, 90)
    assert parts(run.found()) == {(CODE, "Gate.__call__"): 50, (CALLS, "resize"): 50}


# --- how requests are made, refused and delivered -----------------------------------------------------------------


def kinds(run: Served) -> set[str]:
    return {each.kind for each in find(Analysis(run.table()))}


@pytest.mark.parametrize(
    ("pause", "is_found"), [(0, True), (-50, False), (-1, True)], ids=["one by one", "at once", "it ends a bit later"]
)
def test_calls_of_a_request_that_follow_each_other_are_named(pause: float, is_found: bool) -> None:
    """Calls that overlap are none of them, but for the moment in which a replica ends after its result is there."""
    run = Served()
    for number in range(6):
        root = run.request(0, 300, trace=number + 1)
        front = run.call(root, "Front.__call__", 0, 0, 1, 300, trace=number + 1)
        for place in range(2):
            begun = 2 + place * (100 + pause)
            name, replica = ("Price.get", "p") if place else ("Stock.get", "s")
            run.call(front, name, begun, begun, begun, begun + 100, trace=number + 1, replica=replica, caller="r1")
    assert ("requests-in-turn" in kinds(run)) == is_found


@pytest.mark.parametrize(("models", "again"), [(2, 6), (8, 0), (1, 0)])
def test_models_that_are_loaded_again_are_named_and_others_are_not(models: int, again: int) -> None:
    """The first load of each is needed, and for a single one no replica has made room for another."""
    run = Served()
    for number in range(8):
        begun = number * 100
        root = run.request(begun, begun + 100, trace=number + 1)
        front = run.call(root, "Zoo.__call__", begun, begun, begun, begun + 100, trace=number + 1)
        attributes = {names.RAY_SERVE_MULTIPLEXED_MODEL_ID: f"m{number % models}"}
        name = f"Zoo.load {names.SERVE_MULTIPLEXED}"
        run.span(name, begun, begun + 80, front, worker="r1", trace=number + 1, attributes=attributes)
    found = [each for each in find(Analysis(run.table())) if each.kind == "loading-models"]
    assert [f"{again} of these times" in each.text for each in found] == [True] * bool(again)
    assert [each.requests_share for each in found] == [pytest.approx(0.8 * again / 8)] * bool(again)


def test_requests_that_end_before_they_begin_have_no_share_of_their_time() -> None:
    """Where a clock was set back, their time is nothing."""
    run = Served()
    for number in range(12):
        begun = 100 * number
        root = run.request(begun + 50, begun, trace=number + 1)
        run.call(root, "M.f", begun + 10, begun + 2, begun + 30, begun + 3, trace=number + 1)
    assert not kinds(run) & {"waiting-for-replicas", "waiting-for-batches"}


@pytest.mark.parametrize(("earlier", "kind"), [(True, "slow-deliveries"), (False, "waiting-for-replicas")])
def test_only_where_a_replica_was_free_requests_were_long_on_their_way(earlier: bool, kind: str) -> None:
    """The choice of a replica lasts until it has the request with its arguments, or until there is a replica."""
    run = Served()
    if earlier:
        root = run.request(0, 1, trace=99)
        run.call(root, "Sink.__call__", 0, 0, 0, 1, trace=99)
    for number in range(12):
        begun = 10 + number * 200 if earlier else 10
        root = run.request(begun, begun + 110, trace=number + 1)
        run.call(root, "Sink.__call__", begun, begun + 100, begun + 100, begun + 110, trace=number + 1)
    assert kinds(run) & {"slow-deliveries", "waiting-for-replicas"} == {kind}


def test_time_without_spans_comes_after_what_makes_requests_slow() -> None:
    """Where the clients are outside, no cost of the run is known."""
    run, driver = Served.driven(10_000, parts="serve,get,wait")
    run.get(driver, ["0" * 48 + "01000000"], 1, 9_000)
    for number in range(12):
        root = run.request(0, 100, trace=number + 2)
        run.call(root, "Gate.__call__", 0, 60, 60, 100, trace=number + 2)
    found = [each.kind for each in find(Analysis(run.table()))]
    assert found == ["waiting-for-replicas", "unrecorded"]
