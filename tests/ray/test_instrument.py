"""Libraries that RAY_TRACING_INSTRUMENT names, in drivers and workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import installed
import pytest
from http_server import Answer, Request, http_server
from support import HOOK, by_name, run_program, spans_in, tree, with_data

CLIENT = 3


@pytest.fixture
def server() -> Iterator[tuple[str, dict[str, str | None]]]:
    """The address of a server that answers with the path, and the ``traceparent`` that came with each path."""
    heard: dict[str, str | None] = {}

    def answer(request: Request) -> Answer:
        heard[request.path] = request.headers.get("traceparent")
        return Answer(body=request.path.encode())

    with http_server(answer) as url:
        yield f"{url}/", heard


def test_requests_of_drivers_tasks_and_actors_are_in_the_trace(
    tmp_path: Path, server: tuple[str, dict[str, str | None]]
) -> None:
    """Below the span of the call that sends them, and the server hears of it; an unknown name is said once."""
    address, heard = server
    run = run_program(
        "fetching",
        RTH_HOOK=HOOK,
        RTH_SERVER=address,
        RAY_TRACING_LOCAL_DIR=str(tmp_path / "spans"),
        RAY_TRACING_INSTRUMENT="requests,reqests",
    )
    assert run.result == ["/driver", "/task", "/actor"]
    assert run.stderr.count("no instrumentation 'reqests' is installed; did you mean 'requests'?") == 1
    spans = spans_in(tmp_path / "spans")
    senders = {
        "/driver": "fetching.py ray.driver",
        "/task": "__main__.fetch ray.remote_worker",
        "/actor": "Fetcher.fetch ray.remote_worker",
    }
    requests = {span.span_id: span for span in spans if span.kind == CLIENT}
    assert len(requests) == 3
    for path, name in senders.items():
        (sender,) = by_name(spans, name)
        traceparent = heard[path]
        assert traceparent is not None
        _, trace_id, span_id, _ = traceparent.split("-")
        assert requests[span_id].parent_id == sender.span_id
        assert trace_id == requests[span_id].trace_id == sender.trace_id


@pytest.mark.slow  # it imports Ray Data; other instrumentations are tried in cheaper programs
@pytest.mark.skipif(not find_spec("opentelemetry.instrumentation.aiohttp_client"), reason="needs the instrumentation")
def test_the_http_stage_of_ray_data_llm_continues_its_trace(tmp_path: Path) -> None:
    heard: list[str] = []

    def answer(request: Request) -> Answer:
        heard.append(request.headers["traceparent"])
        return Answer(body=b'{"tokens": 5}', headers={"Content-Type": "application/json"})

    path = os.pathsep.join([with_data()["PYTHONPATH"], installed.folder("extras")])
    with http_server(answer) as url:
        run = run_program(
            "data_http",
            url,
            PYTHONPATH=path,
            RTH_HOOK=HOOK,
            RAY_TRACING_LOCAL_DIR=str(tmp_path),
            RAY_TRACING_INSTRUMENT="aiohttp-client",
        )
    assert run.result == 30
    spans = {span.span_id: span for span in spans_in(tmp_path)}
    requests = [span for span in spans.values() if span.name == "POST"]
    assert len(requests) == 6
    assert sorted(each[3:-3] for each in heard) == sorted(f"{span.trace_id}-{span.span_id}" for span in requests)
    assert all("HttpRequest" in spans[span.parent_id].attributes["ray.data.operator"] for span in requests)


def test_threads_and_children_of_tasks_are_in_the_trace_with_the_instrumentation_of_threads(tmp_path: Path) -> None:
    """What they do and call is below the task that started them, as if it had done it itself."""
    run = run_program("threads", RTH_HOOK=HOOK, RAY_TRACING_LOCAL_DIR=str(tmp_path), RAY_TRACING_INSTRUMENT="threading")
    assert run.result == [1, 1, 1]
    assert tree(spans_in(tmp_path)) == THREADS.strip()


THREADS = """
Asynchronous.__init__ call
Asynchronous.starts_threads call
  run_in_executor
    __main__.called call
  to_thread
    __main__.called call
__main__.forks call
  around the pool
    in a child
__main__.starts_threads call
  map
    __main__.called call
  pool
    __main__.called call
  thread
    __main__.called call
  timer
    __main__.called call
"""
