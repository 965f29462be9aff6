"""Nothing that has ended is lost, however the program ends."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from support import await_spans, by_name, check_links, run_program

from ray_tracing_hooks._insight.model import Span

CALLS = 300
ERRORS = {"exception": "RuntimeError", "interrupt": "KeyboardInterrupt"}
HOOK = "ray_tracing_hooks.local:setup"


def expected(how: str) -> Counter[str]:
    """How many spans of each name the program of ``endings.py`` leaves."""
    tasks = {"__main__.only_once": 20} if how == "max_calls" else {"__main__.task": CALLS}
    calls = {**tasks, "Actor.__init__": 2, "Actor.call": 2 * CALLS}
    if how == "sigkill_worker":
        calls["__main__.cut_off"] = 1
    names = Counter({"endings.py ray.driver": 1, "in call": 2 * CALLS})
    if how == "sigkill_worker":
        names["cut off too"] = 1
    for name, count in calls.items():
        names[f"{name} ray.remote"] = names[f"{name} ray.remote_worker"] = count
    return names


@pytest.mark.parametrize(
    "how",
    [
        *("shutdown", "fall_off", "os_exit", "kill_actor", "sigkill_worker", "max_calls"),
        *("exception", "interrupt", "sigkill_driver"),
    ],
)
def test_every_span_is_in_the_files(how: str, tmp_path: Path) -> None:
    """All submissions, executions and user spans are delivered; what a kill cut off is there, marked as an error."""
    run = run_program(
        "endings", how, str(tmp_path / "pid"), check=False, RTH_HOOK=HOOK, RAY_TRACING_LOCAL_DIR=str(tmp_path / "spans")
    )
    assert f"RESULT {expected_result(how)}" in run.stdout, run.stderr
    wanted = expected(how)

    def complete(spans: list[Span]) -> bool:
        return len(spans) >= wanted.total()

    # Where the driver could not wait for delivery, the shipper goes on without it.
    waits = how not in {"os_exit", "sigkill_driver"}
    spans = await_spans(tmp_path / "spans", complete, timeout=0 if waits else 30)
    print(f"{how}: spans expected {wanted.total()}, found {len(spans)}")
    assert Counter(span.name for span in spans) == wanted
    check_links(spans)
    cut_off = {"__main__.cut_off ray.remote_worker", "cut off too"} if how == "sigkill_worker" else set()
    if not waits:
        cut_off.add("endings.py ray.driver")
    for span in spans:
        if span.name in cut_off:
            assert (span.status_code, span.status_message) == (2, "worker died"), span.name
            assert span.attributes["ray.end_estimated"] is True
        elif how not in ERRORS or span.name != "endings.py ray.driver":
            assert span.status_code == 0, span
    if how in ERRORS:
        (driver,) = by_name(spans, "endings.py ray.driver")
        assert (driver.status_code, driver.attributes["error.type"]) == (2, ERRORS[how])


def expected_result(how: str) -> int:
    calls = 20 if how == "max_calls" else CALLS
    return sum(range(calls)) + 2 * sum(range(CALLS))
