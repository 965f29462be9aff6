"""What ``status`` makes of the figures of nodes: rates between two looks, and what is wrong."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from ray_tracing_hooks._cli.status import NodeStatus, _lines, as_json, take
from ray_tracing_hooks._ops.cluster import Answer, Node
from ray_tracing_hooks._ship.figures import DestinationFigures, Figures

SECOND = 10**9
A, B = Node("aa", "a", "10.0.0.1", True), Node("bb", "b", "10.0.0.2", False)


class Visited:
    """Nodes with these answers, in place of a visit of a cluster."""

    def __init__(self, **answers: Answer) -> None:
        self._answers = {node: answers[node.name] for node in (A, B) if node.name in answers}
        self.nodes = tuple(self._answers)

    def call(self, *_arguments: object, **_options: object) -> dict[Node, Answer]:
        return self._answers


def answer(time_ns: int, figures: Figures, **changes: Any) -> Answer:
    spool = {"path": "/s/1", "runs": True, "exporters": ["otlp"], "figures": asdict(figures), **changes}
    return Answer({"time_ns": time_ns, "spools": [spool]})


def figures(updated_ns: int, began_ns: int = 1, **counts: Any) -> Figures:
    return Figures(
        updated_ns=updated_ns, began_ns=began_ns, destinations=(DestinationFigures(exporter="otlp", **counts),)
    )


def statuses(*answers: Answer) -> list[NodeStatus]:
    """The statuses of a node one after the other."""
    found: list[NodeStatus] = []
    for each in answers:
        found += take(Visited(a=each), 1.0, found[-1:])  # type: ignore[arg-type]
    return found


def test_a_rate_counts_what_is_recorded_whether_it_is_delivered_or_not() -> None:
    """By the times at which the shipper counted, which takes its figures once a second."""
    first, second, third = statuses(
        answer(10 * SECOND, figures(10 * SECOND, delivered=100)),
        answer(12 * SECOND, figures(12 * SECOND, delivered=150, waiting=30, refused=15, dropped=5)),
        answer(20 * SECOND, figures(12 * SECOND, delivered=150, waiting=30, refused=15, dropped=5)),
    )
    assert (first.rate, second.rate, third.rate) == (None, 50.0, 0.0)


def test_a_rate_after_a_pause_does_not_count_the_pause() -> None:
    """Figures that do not change are not stored: the last ones are old then."""
    _, second = statuses(
        answer(100 * SECOND, figures(10 * SECOND, delivered=100)),
        answer(102 * SECOND, figures(101 * SECOND, delivered=140)),
    )
    assert second.rate == 20.0


def test_a_shipper_that_has_just_begun_has_no_rate() -> None:
    """Its counts begin at zero; so does a spool that was not there before."""
    first, second = statuses(
        answer(10 * SECOND, figures(10 * SECOND, delivered=100)),
        answer(12 * SECOND, figures(12 * SECOND, began_ns=2, delivered=5)),
    )
    assert (first.rate, second.rate) == (None, None)


BAD = {
    "spans that were not written": answer(1, Figures(updated_ns=1, began_ns=1, unwritten=1)),
    "refused spans": answer(1, figures(1, refused=1)),
    "dropped spans": answer(1, figures(1, dropped=1)),
    "delivery that fails": answer(1, figures(1, waiting=1, is_failing=True)),
    "no shipper for what waits": answer(1, figures(1, waiting=1), runs=False),
    "a shipper that does nothing": answer(1, figures(1, waiting=1), is_stuck=True),
    "no answer": Answer(failure="silent", text="no answer within 30 s"),
    "another version of the package": Answer({"error": "ImportError: no"}),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_seen(case: str) -> None:
    (found,) = statuses(BAD[case])
    assert found.is_bad


def test_what_is_right_is_seen() -> None:
    """Spans that wait a moment, an error that is over, and a spool that is left empty."""
    for each in (
        answer(1, figures(1, waiting=3)),
        answer(1, figures(1, retries=2, error="HTTP 503", delivered=5)),
        answer(1, figures(1), runs=False),
    ):
        assert not statuses(each)[0].is_bad


def test_the_report_says_which_nodes_did_not_answer() -> None:
    """And why; workers that die are a matter for ``doctor``."""
    visit = Visited(a=answer(7, figures(1, delivered=3)), b=Answer(failure="died", text="ActorDiedError"))
    report = as_json("10.0.0.1:6379", take(visit, 1.0))  # type: ignore[arg-type]
    good, dead = report["nodes"]
    assert (report["version"], report["address"]) == (1, "10.0.0.1:6379")
    assert (good["name"], good["error"], good["time_ns"], good["spans_per_second"]) == ("a", None, 7, None)
    (spool,) = good["spools"]
    assert spool.keys() == {"path", "shipper_runs", "exporters", "figures", "spans_per_second"}
    assert spool["figures"]["destinations"][0]["delivered"] == 3
    assert dead["spools"] == []
    assert "ray-tracing-hooks doctor" in dead["error"]


def shown(**control: dict[str, Any]) -> str:
    """What the command prints of nodes with these settings."""
    answers = {name: Answer({"time_ns": 1, "spools": [], "control": each}) for name, each in control.items()}
    lines = _lines("10.0.0.1:6379", take(Visited(**answers), 1.0))  # type: ignore[arg-type]
    return "\n".join(str(getattr(each, "text", each)) for each in lines)


def test_what_is_set_is_said_and_nothing_if_nothing_is() -> None:
    """That a command has made it, and not that it applies everywhere."""
    made = {"version": 3, "enabled": False}
    plain = shown(a=made, b=made)
    assert "tracing was switched off (version 3)" in plain
    assert "tracing is off" not in plain
    nothing = {"version": 0, "enabled": None}
    assert "version" not in shown(a=nothing, b=nothing)
    changed = {"version": 4, "enabled": None, "variables": ["OTEL_TRACES_SAMPLER", "RAY_TRACING_EXCLUDE"]}
    assert "; settings were changed (version 4): OTEL_TRACES_SAMPLER, RAY_TRACING_EXCLUDE\n" in shown(a=changed)
    reset = {**changed, "version": 5, "variables": []}
    assert "version" not in shown(a=reset)
