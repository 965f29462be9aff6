"""Tasks that a deployment of Ray Serve takes from a queue are in the traces of those that put them there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Cluster
from support import by_name, spans_in, text_of_serve, tree

from ray_tracing_hooks._insight.model.span import Span

pytestmark = [
    pytest.mark.slow,  # a server of its own
    pytest.mark.skipif("CeleryTaskProcessorAdapter" not in text_of_serve("task_processor"), reason="this Ray has none"),
]

PRODUCER, CONSUMER = 4, 5

SUMMARY = (
    "summarize serve.enqueue\n"
    "  Summaries.summary serve.task\n"
    "    summarizes {0}\n"
    "      __main__.square ray.remote\n"
    "        __main__.square ray.remote_worker"
)


class Handled:
    def __init__(self, result: dict[str, Any], spans: list[Span]) -> None:
        self.tasks, self.results, self.spans = result["tasks"], result["results"], spans
        self.signature = result["signature"]

    def trace(self, name: str) -> list[Span]:
        """The trace that a task was put into the queue in."""
        (task,) = (
            span
            for span in self.spans
            if span.name.endswith(" serve.task")
            and span.attributes["messaging.message.id"] == self.tasks[name]
            and "ray.attempt" not in span.attributes
        )
        return [span for span in self.spans if span.trace_id == task.trace_id]

    def below(self, name: str) -> str:
        """That trace, from the span in which this was done."""
        return tree(self.trace(name)).partition("serve.replica\n")[2]


@pytest.fixture(scope="module")
def handled(serving: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Handled:
    folder: Path = tmp_path_factory.mktemp("queue")
    run = serving.run("serve_tasks", str(folder))
    return Handled(run.result, spans_in(serving.spans))


def indented(text: str, by: int) -> str:
    return "\n".join(" " * by + line for line in text.splitlines())


def test_a_request_is_one_trace_to_what_its_task_calls(handled: Handled) -> None:
    """What the client sent along, too, arrives in the task."""
    assert handled.results["by request"] == ["SUCCESS", [9, "me"]]
    spans = handled.trace("by request")
    assert {span.trace_id for span in spans} == {b"by request".hex().zfill(32)}
    assert handled.below("by request") == "      asks for summarize\n" + indented(SUMMARY.format(3), 8)


def test_both_sides_of_a_task_say_what_and_where_it_is(handled: Handled) -> None:
    spans = handled.trace("by request")
    (sent,), (run,) = by_name(spans, "summarize serve.enqueue"), by_name(spans, "Summaries.summary serve.task")
    assert (sent.kind, run.kind) == (PRODUCER, CONSUMER)
    both = {
        "messaging.system": "celery",
        "messaging.destination.name": "summaries",
        "messaging.message.id": handled.tasks["by request"],
        "ray.serve.task_name": "summarize",
    }
    for span, more in (
        (sent, {"messaging.operation.name": "send_task", "messaging.operation.type": "send"}),
        (
            run,
            {
                "messaging.operation.name": "run",
                "messaging.operation.type": "process",
                "ray.serve.application": "tasks",
                "ray.serve.deployment": "Summaries",
                "ray.serve.method": "summary",
            },
        ),
    ):
        told = {
            key: value
            for key, value in span.attributes.items()
            if key.startswith(("messaging.", "ray.serve.")) and key != "ray.serve.replica_id"
        }
        assert told == both | more
    assert run.attributes["ray.serve.replica_id"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("by program", "by program\n" + indented(SUMMARY.format(6), 2)),
        (
            "by task",
            "by task\n  __main__.enqueuing ray.remote\n    __main__.enqueuing ray.remote_worker\n"
            + indented(SUMMARY.format(7), 6),
        ),
    ],
)
def test_tasks_of_programs_and_of_ray_tasks_are_in_their_traces(handled: Handled, name: str, expected: str) -> None:
    assert handled.results[name][0] == "SUCCESS"
    assert tree(handled.trace(name)) == expected


def test_each_attempt_is_a_span_with_its_error(handled: Handled) -> None:
    assert handled.results["task retried"] == ["SUCCESS", 4]
    assert handled.below("task retried") == (
        "      asks for fail_once\n"
        "        fail_once serve.enqueue\n"
        "          Summaries.fail_once serve.task !KeyError\n"
        "          Summaries.fail_once serve.task #1"
    )
    assert handled.results["task failed"] == ["FAILURE", "ValueError(5)"]
    assert handled.below("task failed") == (
        "      asks for fail\n"
        "        fail serve.enqueue\n"
        "          Summaries.fail serve.task !ValueError\n"
        "          Summaries.fail serve.task !ValueError #1\n"
        "          Summaries.fail serve.task !ValueError #2"
    )


def test_a_task_that_tells_no_trace_begins_one(handled: Handled) -> None:
    """It is put there by an application of Celery's that knows nothing of tracing."""
    assert handled.results["untraced"] == ["SUCCESS", [64, None]]
    assert tree(handled.trace("untraced")) == SUMMARY.format(8).partition("\n")[2].replace("\n  ", "\n").strip()


def test_what_is_wrapped_is_called_as_it_says(handled: Handled) -> None:
    assert handled.signature.startswith("(task_name, args=None, kwargs=None, **options)")
