"""Iterations over a dataset, and what the program waited for: wraps ``DataIterator._iter_batches`` (Ray 2.60
``data/iterator.py``), which ``iter_batches``, ``iter_rows``, ``iter_torch_batches``, ``take`` and others call.

The span of an iteration is not current in the body of the program's loop, only while a batch is being fetched: an
execution that this starts is below it. How long each stage let the program wait is measured by Ray Data (Ray 2.60
``data/_internal/stats.py``); ``BatchIterator`` is given where (``data/_internal/block_batching/iter_batches.py``).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import Any
from weakref import WeakSet

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import monotonic
from ray_tracing_hooks._ray import library_spans, tracing
from ray_tracing_hooks._ray.data import operators
from ray_tracing_hooks._ray.data.operators import consumer_in, end_with
from ray_tracing_hooks._ray.library_spans import followed_by, preceded_by
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.current import attach, detach, get_current
from ray_tracing_hooks._safety.exceptions import hidden_frame, hide_frame
from ray_tracing_hooks._safety.guard import guarded

_STAGES = (
    (names.RAY_DATA_WAIT_TIME_PRODUCTION, "iter_blocked_production_wait_s"),
    (names.RAY_DATA_WAIT_TIME_TRANSFER, "iter_blocked_data_transfer_s"),
    (names.RAY_DATA_WAIT_TIME_BATCHING, "iter_blocked_batching_s"),
    (names.RAY_DATA_WAIT_TIME_FORMAT, "iter_blocked_format_s"),
    (names.RAY_DATA_WAIT_TIME_COLLATE, "iter_blocked_collate_s"),
    (names.RAY_DATA_WAIT_TIME_FINALIZE, "iter_blocked_finalize_s"),
)
"""Our attribute and the timer of ``DatasetStats``."""


class _ThisIteration(threading.local):
    iteration: Iteration | None = None

    @property
    def method(self) -> str:
        """The method of Ray Data that iterates; empty without an iteration."""
        return self.iteration.method if self.iteration is not None else ""


this_iteration = _ThisIteration()
"""The iteration that fetches a batch in this thread now."""

_open: WeakSet[Iteration] = WeakSet()

_DOING = "tracing an iteration over a dataset"


def give_up() -> None:
    """End the spans of open iterations when this process disconnects."""
    for iteration in list(_open):
        iteration.end(None, operators.ABANDONED)


def _trace(batches: Any, source: Any, *_args: Any, **_kwargs: Any) -> None:
    make = getattr(batches, "iterator_gen", None)
    if make is not None:
        method = consumer_in(sys._getframe(1))  # noqa: SLF001  no other way to look at the callers
        batches.iterator_gen = _Iterate(make, source, method)


WRAPPERS = {"DataIterator._iter_batches": followed_by(_trace, _DOING)}


class _Iterate:
    """Takes the place of the function that begins an iteration, in the object that ``iter_batches`` returns.

    A program may pass that object to a task. The copy has the plain function, and can be unpickled where this package
    is not.
    """

    def __init__(self, make: Callable[[], Any], source: Any, method: str) -> None:
        self._make, self._source, self._method = make, source, method

    def __reduce__(self) -> Any:
        return partial, (self._make,)

    def __call__(self) -> Generator[Any, Any, Any]:
        return _steps(self._make, self._source, self._method)


def _steps(make: Callable[[], Any], source: Any, method: str) -> Generator[Any, Any, Any]:
    """What ``make`` returns, as a span. Like a plain ``yield from``, all that its consumer does is passed on."""
    body = make()
    # Another version of Ray may iterate in another way.
    iteration = _begin(source, method) if isinstance(body, Generator) else None
    if iteration is None:
        return (yield from body)
    step, value = body.send, None
    try:
        while True:
            batch = iteration.fetch(step, value)
            iteration.batches += 1
            try:
                sent = yield batch
            except GeneratorExit:
                iteration.fetch(body.close)
                raise
            except BaseException as error:  # noqa: BLE001  thrown in by the consumer, for the body to handle
                hide_frame(error)
                step, value = body.throw, error
            else:
                step, value = body.send, sent
    except StopIteration as stop:
        iteration.end(None)
        return stop.value
    except BaseException as error:
        hide_frame(error)
        iteration.end(error)
        raise


@guarded(_DOING)
def _begin(source: Any, method: str) -> Iteration | None:
    active = tracing.active
    if active is None:
        return None
    iteration = Iteration(active, source, method)
    _open.add(iteration)
    return iteration


class Iteration:
    """One iteration.

    Attributes:
        batches: How many batches the program has got.
    """

    def __init__(self, active: Tracing, source: Any, method: str) -> None:
        self.method = method
        self._source = source
        self.batches = 0
        self._waited = self._used = self._first = 0.0
        self._handled: BaseException | None = None
        self._asked: float | None = None
        self._until: float | None = None
        self._epoch: int | None = None
        self._stats: Any = None
        self._before: dict[str, float] = {}
        split = getattr(source, "_output_split_idx", None)
        attributes = {names.RAY_DATA_CONSUMER: method, **({names.RAY_DATA_SPLIT: split} if split is not None else {})}
        name = f"{method or 'iterate'} {names.DATA_ITERATION}"
        self._context, self._span = library_spans.begin(active, name, get_current(), attributes)

    def fetch(self, step: Callable[..., Any], *value: Any) -> Any:
        """Make one step in the context of the iteration, as its consumer waits for it."""
        self._handled = sys.exc_info()[1]
        began = self._asked = monotonic()
        is_first = self._until is None
        if self._until is not None:
            self._used += began - self._until
        around = this_iteration.iteration
        this_iteration.iteration = self
        token = attach(self._context)
        try:
            with hidden_frame:
                return step(*value)
        finally:
            detach(token)
            this_iteration.iteration = around
            self._handled = None
            self._asked, self._until = None, monotonic()
            self._waited += self._until - began
            if is_first:
                self._first = self._until - began
                self._epoch = getattr(self._source, "_active_epoch", None)

    def unwinding(self) -> BaseException | None:
        """The error that is ending it just now, if it is called in the thread that fetches a batch.

        None where the program ends it early: an error in the body of its loop is not known here.
        """
        error = sys.exc_info()[1] if this_iteration.iteration is self else None
        return error if error is not self._handled else None

    def measures(self, stats: Any, tags: Any) -> None:
        """Learn where Ray Data measures the stages, and of which dataset."""
        self._stats = stats
        self._before = _measured(stats)
        dataset = tags.get("dataset") if isinstance(tags, dict) else tags
        if self._span is not None and isinstance(dataset, str):
            self._span.set_attribute(names.RAY_DATA_DATASET_ID, dataset)

    def end(self, error: BaseException | None, outcome: str = "") -> None:
        """End its span, once."""
        span = self._span
        _open.discard(self)
        if span is None or not span.is_recording():
            return
        self._add_open()
        outcome = outcome or operators.outcome_of(error, is_complete=error is None)
        with guarded("describing an iteration over a dataset"):
            span.set_attributes(self._attributes(outcome))
        if error is not None and outcome in {operators.FAILED, operators.CANCELLED}:
            end_with(span, error)
        else:
            span.end()

    def _add_open(self) -> None:
        """Add what has passed since the last step began or ended, if the program abandons the iteration."""
        now, asked, until = monotonic(), self._asked, self._until
        if asked is not None:
            self._waited += now - asked
        elif until is not None:
            self._used += now - until

    def _attributes(self, outcome: str) -> dict[str, Any]:
        measured = {key: value - self._before.get(key, 0) for key, value in _measured(self._stats).items()}
        found = {
            names.RAY_DATA_OUTCOME: outcome,
            names.RAY_DATA_BATCHES: self.batches,
            names.RAY_DATA_WAIT_TIME: round(self._waited, 6),
            names.RAY_DATA_USER_TIME: round(self._used, 6),
            **({names.RAY_DATA_FIRST_BATCH_TIME: round(self._first, 6)} if self._first else {}),
            **({names.RAY_DATA_EPOCH: self._epoch} if self._epoch is not None else {}),
        }
        return found | {key: round(value, 6) for key, value in measured.items() if value > 0}


def _measured(stats: Any) -> dict[str, float]:
    """What Ray Data has measured by now, for all iterations that share these statistics."""
    timers = ((key, getattr(stats, name, None)) for key, name in _STAGES)
    found = {key: timer.get() for key, timer in timers if timer is not None}
    rows = getattr(stats, "iter_rows_total", None)
    return found | ({names.RAY_DATA_ROWS: rows} if rows is not None else {})


def _measure(_batches: Any, *_args: Any, **kwargs: Any) -> None:
    iteration = this_iteration.iteration
    if iteration is not None:
        iteration.measures(kwargs.get("stats"), kwargs.get("dataset_tags", kwargs.get("dataset_tag")))


STAGES = {"BatchIterator.__init__": preceded_by(_measure, _DOING)}
"""Where the stages are measured. Older versions of Ray do not measure them for each iteration."""
