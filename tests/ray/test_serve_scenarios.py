"""Applications of every kind and what can become of a request: the expected tree against the one that is found."""

from __future__ import annotations

import json
from textwrap import indent
from typing import Any

import pytest
from conftest import Cluster
from support import CLIENT, Served, below, by_name, serve_route, spans_in, text_of_serve, tree

pytestmark = pytest.mark.slow(older_rays=True)  # a server of its own


class Asked(Served):
    def answer(self, name: str) -> Any:
        """The body of a response that was given with 200."""
        status, body = self.result[name]
        assert status == 200
        return json.loads(body)

    def tree(self, name: str) -> str:
        """The trace of a request by HTTP, all of which is below the client's span."""
        spans = self.trace(name)
        known = {span.span_id for span in spans}
        assert [span.parent_id for span in spans if span.parent_id not in known] == [CLIENT]
        return tree(spans)

    def below(self, name: str) -> str:
        """What is below a span of the program's own."""
        return tree(below(self.spans, name))


@pytest.fixture(scope="module")
def served(serving: Cluster) -> Asked:
    run = serving.run("serve_scenarios")
    return Asked(run.result, spans_in(serving.spans))


def replica(deployment: str, line: str, *below: str, error: str = "") -> str:
    """The tree of a request to a deployment, where ``below`` is in its replica."""
    return "\n".join(
        [
            line,
            f"  {deployment} serve.remote",
            f"    {deployment} serve.replica{error}",
            *(f"      {part}" for each in below for part in each.splitlines()),
        ]
    )


def added(x: int) -> str:
    return f"Steps.add serve.remote\n  Steps.add serve.replica\n    adds to {x}"


def test_applications_built_by_a_configuration_are_traced_whatever_they_are_made_of(served: Asked) -> None:
    assert served.result["configured"] == [200, "/function/any"]
    assert served.tree("configured") == replica("function.__call__", "GET /function", "function")
    assert served.answer("starlette") == [1, 2]
    assert served.tree("starlette") == replica(
        "WithStarlette.__call__", f"GET {serve_route('/starlette', '/list/{of}')}", "listed"
    )
    assert served.result["raw"] == [200, ""]
    assert served.tree("raw") == replica("WithRaw.__call__", "PUT /raw", "raw")


def test_a_worker_can_pickle_a_deployment_with_batches(served: Asked) -> None:
    """Such a method is pickled by value, and refers to functions of Ray that are replaced."""
    assert served.result["pickled in a worker"] is True


def test_the_route_of_a_request_is_that_of_the_mounted_application_or_router(served: Asked) -> None:
    assert [served.answer(name) for name in ("mounted", "routed")] == [3, 4]
    mounted, routed = serve_route("/shop", "/mounted/things/{y}"), serve_route("/shop", "/router/{x}")
    assert served.tree("mounted") == replica("Shop.__call__", f"GET {mounted}", "thing")
    assert served.tree("routed") == replica("Shop.__call__", f"GET {routed}", "routed")


def test_statuses_of_applications_are_errors_from_500_on(served: Asked) -> None:
    assert [served.result[name][0] for name in ("teapot", "broken", "raw fails", "starlette fails")] == [
        *(418, 503, 500, 500)
    ]
    assert served.tree("teapot") == replica("Shop.__call__", f"GET {serve_route('/shop', '/teapot')}")
    assert served.tree("broken") == replica(
        "Shop.__call__", f"GET {serve_route('/shop', '/broken')} !503", error=" !503"
    )
    assert served.tree("raw fails") == replica("WithRaw.__call__", "GET /raw !500", "raw", error=" !500")
    failing = serve_route("/starlette", "/failing")
    assert served.tree("starlette fails") == replica(
        "WithStarlette.__call__", f"GET {failing} !500", error=" !KeyError"
    )


def test_what_the_client_sent_along_arrives_in_the_second_deployment(served: Asked) -> None:
    (trace_id,) = {span.trace_id for span in served.trace("told")}
    context = {"trace": trace_id, "state": "a=1,b=2", "baggage": {"user": "me", "key": "value two"}}
    assert served.answer("told") == [context, context]


def test_a_header_that_is_no_trace_begins_a_trace_of_its_own(served: Asked) -> None:
    answers = [json.loads(body) for _, body in served.result["malformed"]]
    traces = [each[0]["trace"] for each in answers]
    assert len(set(traces)) == len(traces)
    for each, trace_id in zip(answers, traces, strict=True):
        assert each == [{"trace": trace_id, "state": "", "baggage": {}}] * 2
        spans = [span for span in served.spans if span.trace_id == trace_id]
        assert [span.name for span in spans if not span.parent_id] == [f"GET {serve_route('/shop', '/told')}"]


def test_calls_of_other_deployments_are_below_the_request_that_makes_them(served: Asked) -> None:
    """One that takes the response of another, and calls from threads that have the context."""
    answers = {"composed": 3, "thread": 8, "to-thread": 9}
    assert {name: served.answer(name) for name in answers} == answers
    for name, numbers in {"composed": [1, 2], "thread": [7], "to-thread": [8]}.items():
        assert served.tree(name) == replica(
            "Shop.__call__", f"GET {serve_route('/shop', f'/{name}')}", *map(added, numbers)
        )


def test_a_call_from_a_thread_without_context_begins_a_trace(served: Asked) -> None:
    """In a replica; in a driver it is in the driver's trace."""
    assert served.answer("own-thread") == 10
    assert served.tree("own-thread") == replica("Shop.__call__", f"GET {serve_route('/shop', '/own-thread')}")
    (user,) = by_name(served.spans, "adds to 9")
    spans = [span for span in served.spans if span.trace_id == user.trace_id]
    assert tree(spans) == added(9)
    assert [span.name for span in spans if not span.parent_id] == ["Steps.add serve.remote"]
    (of_thread,) = by_name(served.spans, "adds to 20")
    (root,) = by_name(served.spans, "serve_scenarios.py ray.driver")
    assert of_thread.trace_id == root.trace_id


def test_a_stream_that_breaks_is_an_error_where_it_does(served: Asked) -> None:
    """Also of the response by HTTP, which has begun with 200; where the caller catches it, of nothing above."""
    breaking = "Steps.breaking serve.remote\n  Steps.breaking serve.replica !KeyError"
    assert served.answer("caught") == "caught"
    assert served.tree("caught") == replica("Shop.__call__", f"GET {serve_route('/shop', '/caught')}", breaking)
    proxied = f"GET {serve_route('/shop', '/breaking')} !500"
    assert served.tree("breaking") == replica("Shop.__call__", proxied, breaking, error=" !KeyError")


def test_a_request_in_a_replica_that_is_killed_is_a_whole_trace_with_the_error(served: Asked) -> None:
    assert served.result["dies"][0] == 500
    died = "Mortal.dies serve.remote\n  Mortal.dies serve.replica !worker_died"
    proxied = f"GET {serve_route('/shop', '/dies')} !500"
    assert served.tree("dies") == replica("Shop.__call__", proxied, died, error=" !ray.exceptions.ActorDiedError")


def test_a_client_that_leaves_a_stream_is_an_error_of_the_proxys_span(served: Asked) -> None:
    """What makes the stream ends with it: cancelled, or told that the client has gone, whichever comes first."""
    assert served.result["read"] == "xxx"
    spans = {span.name: span for span in served.trace("endless") if "ray.pid" in span.attributes}
    assert spans[f"GET {serve_route('/shop', '/endless')}"].attributes["error.type"] == "499"
    assert len(spans) == 5
    assert {span.state for span in spans.values()} == {"ended"}


def test_a_response_that_its_caller_gives_up_is_cancelled_in_the_replica(served: Asked) -> None:
    assert served.result["handles"] == [21, "took too long", "cancelled"]
    assert served.below("by handles") == (
        "by handles\n  Steps.sleep serve.remote\n    Steps.sleep serve.replica\n      sleeps"
    )


def test_a_request_that_is_refused_under_back_pressure_is_an_error_of_those_that_wait_for_it(served: Asked) -> None:
    """By a handle, and by HTTP where the deployment that is full is behind another; what waits is no error."""
    held, asked, behind, seconds = served.result["back-pressure"]
    # Old versions of Ray do not look for this error in a replica.
    known = "BackPressureError" in text_of_serve("_private/replica")
    status = "503" if known else "500"
    assert (held, {*asked}, {answer for answer, _ in behind}) == (None, {True, "refused"}, {200, int(status)})
    error = " !ray.serve.exceptions.BackPressureError"
    refused, ready = f"Full.ready serve.remote{error}", "Full.ready serve.remote\n  Full.ready serve.replica"
    for number, answer in enumerate(asked):
        name = f"asks {number}"
        below = refused if answer == "refused" else ready
        assert served.below(name) == f"{name}\n" + indent(below, "  ")
    full = f"GET {serve_route('/shop', '/full')}"
    for number, (answer, _) in enumerate(behind):
        assert served.tree(f"behind {number}") == (
            replica("Shop.__call__", full, ready)
            if answer == 200
            else replica("Shop.__call__", f"{full} !{status}", refused, error=" !503" if known else error)
        )
    (holding,) = by_name(served.spans, "Full.hold serve.replica")
    calls = [
        call
        for call in by_name(served.spans, "Full.ready serve.remote")
        if call.status_code != 2 and call.end_ns > holding.start_ns
    ]
    assert len(calls) == sum(answer is True for answer in asked) + sum(answer == 200 for answer, _ in behind)
    for call in calls:
        assert call.start_ns < holding.end_ns < call.end_ns, "it waits for the replica until that is free"
        # But for what it took to be sent to a replica that was full, and to hear so.
        assert seconds - 0.1 < call.attributes["ray.serve.choice_time"] <= (call.end_ns - call.start_ns) / 1e9


def test_a_request_that_gives_up_tells_how_long_it_waited_for_a_replica(served: Asked) -> None:
    assert served.below("gives up") == "gives up\n  Full.ready serve.remote !ray.exceptions.TaskCancelledError"
    *_, seconds = served.result["back-pressure"]
    (name,) = by_name(served.spans, "gives up")
    (call,) = [span for span in by_name(served.spans, "Full.ready serve.remote") if span.parent_id == name.span_id]
    # But for what it took to be sent to a replica that was full, and to hear so.
    assert seconds - 0.9 < call.attributes["ray.serve.choice_time"] <= (call.end_ns - call.start_ns) / 1e9


def test_a_choice_that_is_refused_is_an_error_of_its_span(served: Asked) -> None:
    if "def choose_replica" not in text_of_serve("handle"):
        pytest.skip("this Ray's Serve cannot choose a replica first")
    assert served.below("refused choice") == (
        "refused choice\n  Full.ready serve.choose_replica !ray.serve.exceptions.BackPressureError"
    )
