"""Limits on how many calls a second make spans."""

from __future__ import annotations

from conftest import Cluster
from support import await_spans, by_name, check_links, of_driver, tree


def test_what_is_above_the_limit_is_counted_and_what_it_calls_stays_in_the_trace(cluster: Cluster) -> None:
    """A call above the limit makes no span on either side, in the driver as in an actor; no count is lost.

    Executions are asked to show their arguments too, which comes in at the same place.
    """
    limit = "__main__.leaf=0.001,Actor.nothing=0.001"
    run = cluster.run("limited", RAY_TRACING_RATE_LIMIT=limit)
    assert run.result == 30
    # The span of the last task may end just after its result is seen.
    spans = of_driver(await_spans(cluster.spans, lambda found: len(of_driver(found, "limited")) >= 72), "limited")
    check_links(spans)
    assert tree(spans) == EXPECTED.strip()
    left_out = {span.name: span.attributes["ray.left_out"] for span in spans if "ray.left_out" in span.attributes}
    assert left_out == {"limited.py ray.driver": 19 + 4, "Actor.loop ray.remote_worker": 9}
    assert len(by_name(spans, "__main__.leaf ray.remote")) + 19 + 9 == run.result
    assert {span.attributes["ray.result"] for span in by_name(spans, "__main__.below ray.remote_worker")} == {"1"}


EXPECTED = """
Actor.__init__ call
Actor.loop call
  inner
    __main__.below call x9
    __main__.leaf call
      __main__.below call
Actor.nothing call
__main__.below call x19
__main__.leaf call
  __main__.below call
"""
