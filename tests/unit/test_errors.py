"""How an error of the program ends a span."""

from __future__ import annotations

from pathlib import Path

import pytest
from ray._private import worker
from stand_ins import tracing_of

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span.decode import Span, decode_span
from ray_tracing_hooks._ray import generators, library_spans
from ray_tracing_hooks._ray.errors import fail
from ray_tracing_hooks._ray.process import DRIVER, WORKER
from ray_tracing_hooks._record.current import get_current
from ray_tracing_hooks._record.span import RecordedSpan


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


class InterruptingError(Exception):
    """A signal handler raises while its text is asked for, as when a task that fails is cancelled."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


def test_a_span_ends_even_if_something_interrupts_the_description_of_its_error(tmp_path: Path) -> None:
    for end in (fail, lambda span, error: generators._end(span, 1, error)):
        active = tracing_of(tmp_path)
        ended: list[bytes] = []
        active.recorder.observer = ended.append
        _, span = library_spans.begin(active, "dataset ray.data", get_current())
        assert isinstance(span, RecordedSpan)
        with pytest.raises(KeyboardInterrupt):
            end(span, InterruptingError())
        assert len(ended) == 1
