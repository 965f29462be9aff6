"""A program that reaches a cluster by Ray Client (``ray://``) does not notice that the cluster is traced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import free_port, start_head, stop_head
from support import HOOK, Run, await_spans, check_links, run_program

from ray_tracing_hooks._insight.model import Span

CALLS = {
    "__main__.add": (11, 11),  # of which one fails, three are made by `below` and one by an actor
    "__main__.below": (1, 1),
    "__main__.fail": (1, 1),
    "Counter.add": (4, 3),  # the last one of an actor that has been killed
    "Counter.add_below": (1, 1),
}
"""How often each was submitted and executed."""


def run_client(folder: Path, *options: str, **variables: str) -> Run:
    """Run the program against a new cluster, whose head has ``options`` and ``variables``; the program has neither."""
    port = free_port()
    # How long Ray waits for the server that it starts for a client; half a minute is short on a busy machine.
    variables["RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S"] = "90"
    head, _ = start_head(folder, f"--ray-client-server-port={port}", *options, **variables)
    try:
        address = f"ray://127.0.0.1:{port}"
        run = run_program("client_calls", check=False, timeout=180, RTH_ADDRESS=address)
        if "Initialization failure from server" in run.stderr:
            # The server of a client takes the first free port from 23000 on, and ends if another cluster was faster.
            run = run_program("client_calls", check=False, timeout=180, RTH_ADDRESS=address)
        if options:
            run.spans = await_spans(folder / "spans", ended)
    finally:
        stop_head(head)
    assert run.returncode == 0, run.stderr
    return run


def ended(spans: list[Span]) -> bool:
    """Whether the server's connection for the client has ended, and all spans of it are there."""
    return any(span.name.endswith(" ray.driver") for span in spans) and missing(spans) == {}


def missing(spans: list[Span]) -> dict[str, tuple[tuple[int, int], tuple[int, int]]]:
    """The calls that are not there as often as they were made: (submitted, executed) as expected, and as found."""
    names = Counter(span.name for span in spans)
    found = {call: (names[f"{call} ray.remote"], names[f"{call} ray.remote_worker"]) for call in CALLS}
    return {call: (expected, found[call]) for call, expected in CALLS.items() if found[call] != expected}


@pytest.mark.timeout(400)
def test_a_client_of_a_traced_cluster(short_tmp: Callable[[], Path]) -> None:
    """It gets the results, errors and output that an untraced one gives; its calls are traced from the server on."""
    plain = run_client(short_tmp())
    folder = short_tmp()
    traced = run_client(folder, f"--tracing-startup-hook={HOOK}", RAY_TRACING_LOCAL_DIR=str(folder / "spans"))
    different = {name: (plain.result[name], traced.result[name]) for name in plain.result}
    different = {name: (before, after) for name, (before, after) in different.items() if before != after}
    print(f"client_calls: {len(plain.result) - len(different)} scenarios the same, {len(different)} different")
    assert not different
    assert "ray_tracing_hooks" not in traced.stdout + traced.stderr, "a client hears nothing of its server's tracing"
    assert missing(traced.spans) == {}
    check_links(traced.spans)
    (root,) = [span for span in traced.spans if span.name.endswith(" ray.driver")]
    assert {span.trace_id for span in traced.spans} == {root.trace_id}, "one trace for the connection of the client"
