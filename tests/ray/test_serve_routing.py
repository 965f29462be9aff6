"""How replicas are chosen, waited for and asked how they are."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from conftest import Cluster
from support import Served, by_name, spans_in, text_of_serve, tree

from ray_tracing_hooks._insight.model.span import Span

pytestmark = [
    pytest.mark.slow,  # a server of its own
    pytest.mark.skipif(
        "request_router_kwargs" not in text_of_serve("config"), reason="this Ray's Serve takes no router of the user's"
    ),
]


@pytest.fixture(scope="module")
def served(serving: Cluster) -> Served:
    run = serving.run(
        "serve_routing",
        # What is known of a replica stays known.
        RAY_SERVE_QUEUE_LENGTH_CACHE_TIMEOUT_S="600",
    )
    return Served(json.loads(json.dumps(run.result)), spans_in(serving.spans))


def call(name: str) -> str:
    return f"wants {name}\n  Small.__call__ serve.remote\n    Small.__call__ serve.replica"


def without_choices(spans: Sequence[Span]) -> str:
    return tree([span for span in spans if not span.name.startswith("chooses ") and "Gate." not in span.name])


def test_what_a_router_of_the_users_does_is_in_the_trace_of_the_request_that_it_chooses_for(served: Served) -> None:
    names = [str(number) for number in range(6)]
    assert served.result["at once"] == names
    for name in names:
        spans = served.trace_of(f"wants {name}")
        assert without_choices(spans) == call(name)
        choices = [span for span in spans if span.name.startswith("chooses ")]
        (sent,) = by_name(spans, "Small.__call__ serve.remote")
        assert choices
        assert {(span.name, span.parent_id) for span in choices} == {(f"chooses for {name}", sent.span_id)}


@pytest.mark.skipif(
    "def _register_decrement_queue_len_cache_callback" not in text_of_serve("_private/router"),
    reason="this Ray's Serve asks a replica whether there is room before it sends it another request",
)
def test_a_request_that_a_replica_refuses_tells_how_often_it_was_tried(served: Served) -> None:
    assert served.result["refused"] == "refused"
    spans = served.trace_of("wants refused")
    assert without_choices(spans) == call("refused")
    (sent,) = by_name(spans, "Small.__call__ serve.remote")
    assert sent.attributes["ray.serve.attempts"] == 2
    assert sent.attributes["ray.serve.choice_time"] > 0
    (sent,) = by_name(served.trace_of("wants first"), "Small.__call__ serve.remote")
    assert "ray.serve.attempts" not in sent.attributes


def test_a_request_waits_for_the_first_replica_in_its_own_trace(served: Served) -> None:
    answer, taken = served.result["from zero"]
    assert answer == "there"
    spans = served.trace_of("from zero")
    assert tree(spans) == "from zero\n  FromZero.__call__ serve.remote\n    FromZero.__call__ serve.replica"
    (sent,) = by_name(spans, "FromZero.__call__ serve.remote")
    assert 0.5 * taken < sent.attributes["ray.serve.choice_time"] <= taken
    assert by_name(served.spans, "FromZero.__call__ serve.remote") == [sent]


def test_what_health_checks_and_statistics_call_makes_no_spans(served: Served) -> None:
    assert served.result["asked"] == "often"
    assert by_name(served.spans, "Asked.often serve.replica")
    assert [span.name for span in served.spans if "Asked.ping" in span.name or span.name == "checks"] == []
