"""Many requests to Ray Serve at once: each is one trace of its own, also where a replica is killed under them."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from conftest import Cluster
from support import by_name, spans_in, tree

from ray_tracing_hooks._insight.model.span import Span

pytestmark = pytest.mark.slow  # hundreds of requests

REQUESTS = int(os.environ.get("SERVE_REQUESTS", "500"))
"""Half of them by HTTP, the others by a handle. All are sent at once."""

AROUND_DEATH = 100
"""Half of them are in the replicas while one of these is killed, the others come right after."""


class Loaded:
    """The answers by request, and the spans of each trace."""

    def __init__(self, result: Any, spans: Sequence[Span]) -> None:
        self.load = result["load"]
        self.cut_off, self.held, self.after = result["death"]
        self.batches: list[tuple[Span, list[int]]] = []
        """Each with the numbers of its requests, as the user's span in it tells them."""
        self.traces: dict[str, list[Span]] = defaultdict(list)
        by_id = {span.span_id: span for span in spans}
        for span in spans:
            if span.name == "doubles":
                self.batches.append((by_id[span.parent_id], span.attributes["numbers"]))
            elif span.name != "Model.doubled serve.batch":
                self.traces[span.trace_id].append(span)

    def trace(self, number: int) -> list[Span]:
        """The trace of a request without batches, which are in the trace where it is alone in one."""
        return self.traces[f"{number + 1:032x}"]

    def tree(self, number: int) -> str:
        """That trace, all of which is below the span of the client."""
        spans = self.trace(number)
        known = {span.span_id for span in spans}
        assert [span.parent_id for span in spans if span.parent_id not in known] == [f"{number + 1:016x}"], number
        return tree(spans)


@pytest.fixture(scope="module")
def loaded(serving: Cluster) -> Loaded:
    run = serving.run("serve_load", str(REQUESTS), str(AROUND_DEATH))
    return Loaded(run.result, spans_in(serving.spans))


def answer(number: int) -> list[Any]:
    """Twice the number, and what each of two chunks tells of the context that it was made in."""
    return [2 * number, *[[number, str(number), f"{number + 1:032x}"]] * 2]


def passed(number: int, method: str = "__call__", held: str = "") -> str:
    """The trace of a request that nothing happens to."""
    return (
        f"Ingress.{method} serve.remote\n"
        f"  Ingress.{method} serve.replica\n"
        f"    ingress {number}\n"
        "      Model.predict serve.remote\n"
        "        Model.predict serve.replica\n"
        f"          model {number}\n"
        "            Chunks.items serve.remote\n"
        "              Chunks.items serve.replica\n"
        f"                item 0 of {number}\n"
        f"                item 1 of {number}{held}"
    )


HELD = "\n                  Gate.passing call"


def by_http(text: str) -> str:
    return "\n  ".join(["GET /load", *text.splitlines()])


def test_each_of_many_requests_is_one_trace_with_its_own_context(loaded: Loaded) -> None:
    assert loaded.load == [[200, answer(number)] for number in range(REQUESTS)]
    for number in range(REQUESTS // 2):
        assert loaded.tree(number) == by_http(passed(number))
    for number in range(REQUESTS // 2, REQUESTS):
        assert loaded.tree(number) == passed(number, "predict")


def test_each_request_is_in_one_batch_and_linked_with_that(loaded: Loaded) -> None:
    requests = REQUESTS + AROUND_DEATH
    assert sorted(number for _, numbers in loaded.batches for number in numbers) == list(range(requests))
    assert len(loaded.batches) < requests // 2
    for batch, numbers in loaded.batches:
        assert (batch.name, batch.attributes["ray.serve.batch.size"]) == ("Model.doubled serve.batch", len(numbers))
        models = [span for number in numbers for span in by_name(loaded.trace(number), f"model {number}")]
        assert len(models) == len(numbers)
        if len(numbers) == 1:
            assert (batch.parent_id, batch.trace_id) == (models[0].span_id, models[0].trace_id)
            continue
        assert not batch.parent_id
        assert sorted(link.span_id for link in batch.links) == sorted(span.span_id for span in models)
        for span in models:
            assert [(link.trace_id, link.span_id) for link in span.links] == [(batch.trace_id, batch.span_id)]


def test_requests_in_a_replica_that_is_killed_are_whole_traces_with_the_error(loaded: Loaded) -> None:
    cut_off = set(loaded.cut_off)
    assert 0 < len(cut_off) < AROUND_DEATH // 2, "some in each of the two replicas"
    for number, (status, got) in enumerate(loaded.held, REQUESTS):
        if number not in cut_off:
            assert [status, got] == [200, answer(number)]
            assert loaded.tree(number) == by_http(passed(number, held=HELD))
            continue
        assert status == 500
        assert loaded.tree(number) == (
            "GET /load !500\n"
            "  Ingress.__call__ serve.remote\n"
            "    Ingress.__call__ serve.replica !ray.exceptions.ActorDiedError\n"
            f"      ingress {number} !error\n"
            "        Model.predict serve.remote\n"
            "          Model.predict serve.replica !ray.exceptions.ActorDiedError\n"
            f"            model {number} !error\n"
            "              Chunks.items serve.remote\n"
            "                Chunks.items serve.replica !worker_died\n"
            f"                  item 0 of {number}\n"
            f"                  item 1 of {number} !worker_died\n"
            "                    Gate.passing call"
        )


def test_requests_after_the_death_of_a_replica_are_whole_traces(loaded: Loaded) -> None:
    """The router tries another replica where it has not heard of the death."""
    for number, (status, got) in enumerate(loaded.after, REQUESTS + AROUND_DEATH // 2):
        assert [status, got] == [200, answer(number)]
        assert loaded.tree(number) == by_http(passed(number))
