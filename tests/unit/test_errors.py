"""How an error of the program ends a span."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray._private.worker
import ray.util.client.worker
from opentelemetry.trace import StatusCode
from ray._private import worker
from ray.exceptions import RayTaskError, UserCodeException
from stand_ins import tracing_of

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span.decode import Span, decode_span
from ray_tracing_hooks._ray import client, generators, library_spans, process, tracing
from ray_tracing_hooks._ray.errors import fail
from ray_tracing_hooks._ray.process import DRIVER, WORKER
from ray_tracing_hooks._record.current import get_current
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.patching import Patches


@pytest.mark.parametrize(
    ("mode", "kind", "process"), [(DRIVER, names.DRIVER_DIED, "driver"), (WORKER, names.WORKER_DIED, "worker")]
)
def test_a_signal_that_ends_the_process_is_named_with_it(
    mode: int, kind: str, process: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ray raises it in ``ray.get``."""
    active = tracing_of(tmp_path)
    ended: list[Span] = []
    active.recorder.observer = lambda encoded: ended.append(decode_span(encoded))
    monkeypatch.setattr(worker.global_worker, "mode", mode)
    _, span = library_spans.begin(active, "dataset ray.data", get_current())
    assert span is not None
    error = SystemExit(1)
    error.ray_terminate_msg = "SystemExit is raised (sys.exit is called). Exit code: 15."  # type: ignore[attr-defined]
    fail(span, error)
    (found,) = ended
    assert found.attributes[names.ERROR_TYPE] == kind
    assert span.status.description == f"{process} died: SystemExit is raised (sys.exit is called). Exit code: 15."


REMOTE = """\
\x1b[36mray::Map(bad)()\x1b[39m (pid=1)
  File "job.py", line 1, in bad
    raise ValueError("bad row 350")
ValueError: bad row 350

The above exception was the direct cause of the following exception:

\x1b[36mray::Map(bad)()\x1b[39m (pid=1)
ray.exceptions.UserCodeException: UDF failed to process a data block.
To change retry attempts, backoff, or which errors are retried, configure `ray.data.DataContext.get_current()`"""


@pytest.mark.parametrize("is_set", [False, True], ids=["its error", "what the program has set"])
def test_a_task_whose_dataset_failed_has_the_error_of_the_users_function(is_set: bool, tmp_path: Path) -> None:
    """What Ray Data raises comes from its worker without that error."""
    active = tracing_of(tmp_path)
    ended: list[Span] = []
    active.recorder.observer = lambda encoded: ended.append(decode_span(encoded))
    _, span = library_spans.begin(active, "task", get_current())
    assert span is not None
    if is_set:
        span.set_status(StatusCode.ERROR, "of the program")
        span.set_attribute(names.ERROR_TYPE, "its.Error")
    fail(span, RayTaskError("Map(bad)", REMOTE, UserCodeException("UDF failed")).as_instanceof_cause())
    (found,) = ended
    assert found.status_message == ("of the program" if is_set else "ValueError: bad row 350")
    assert found.attributes[names.ERROR_TYPE] == ("its.Error" if is_set else "ValueError")
    (event,) = found.events
    assert event.attributes[names.EXCEPTION_TYPE] == "ValueError"
    assert event.attributes[names.EXCEPTION_MESSAGE] == "bad row 350"
    assert event.attributes[names.EXCEPTION_STACKTRACE] == REMOTE.replace("\x1b[36m", "").replace("\x1b[39m", "")


class InterruptingError(Exception):
    """A signal handler raises while its text is asked for, as when a task that fails is cancelled."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


def test_a_span_ends_even_if_something_interrupts_the_description_of_its_error(tmp_path: Path) -> None:
    for end in (fail, lambda span, error: generators._end(span, 1, 0.0, error)):
        active = tracing_of(tmp_path)
        ended: list[bytes] = []
        active.recorder.observer = ended.append
        _, span = library_spans.begin(active, "dataset ray.data", get_current())
        assert isinstance(span, RecordedSpan)
        with pytest.raises(KeyboardInterrupt):
            end(span, InterruptingError())
        assert len(ended) == 1


# What fails while Ray connects and disconnects.

hides_frames = pytest.mark.skipif(sys.version_info < (3, 11), reason="a frame cannot be taken out of a traceback there")


def refuse(*_args: Any, **_kwargs: Any) -> Any:
    raise ConnectionError("on purpose")


def lines_of_ours(call: Any, *args: Any) -> list[str]:
    with pytest.raises(ConnectionError, match="on purpose") as raised:
        call(*args)
    return [frame.filename for frame in traceback.extract_tb(raised.tb) if "ray_tracing_hooks/_ray" in frame.filename]


@hides_frames
def test_a_driver_that_cannot_connect_after_an_early_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray._private.worker, "connect", refuse)
    patches = Patches()
    assert process.patch_driver(patches, refuse)
    try:
        assert lines_of_ours(ray._private.worker.connect) == []
    finally:
        patches.undo()


@hides_frames
def test_a_client_that_cannot_disconnect(monkeypatch: pytest.MonkeyPatch) -> None:
    worker: Any = object()
    monkeypatch.setattr(ray.util.client.worker.Worker, "close", refuse)
    monkeypatch.setattr(tracing, "active", SimpleNamespace(process=SimpleNamespace(worker=worker)))
    patches = Patches()
    assert client.patch_end(patches, lambda: None, lambda: None)
    try:
        assert lines_of_ours(ray.util.client.worker.Worker.close, worker) == []
    finally:
        patches.undo()
