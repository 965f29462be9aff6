"""Executions of datasets: wraps ``StreamingExecutor`` (Ray 2.60 ``data/_internal/execution/streaming_executor.py``).

Each execution has an executor of its own. ``execute`` sets it up in the thread of its caller, and ``run`` is its own
thread, which calls ``_scheduling_loop_step`` again and again. ``shutdown`` is called by whoever notices the end first:
the consumer at the last block, at an error or when it stops early, or a finalizer in any thread.

How much the cluster spilled to disk meanwhile is the difference between two answers of Ray's own function, which asks
a raylet for the totals of all nodes (Ray 2.60 ``_private/internal_api.py``, as ``Dataset.materialize()`` does). That
takes milliseconds, so a thread asks.
"""

from __future__ import annotations

import inspect
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import monotonic
from ray_tracing_hooks._ray import library_spans, tracing
from ray_tracing_hooks._ray.data import operators, statistics
from ray_tracing_hooks._ray.data.iteration import this_iteration
from ray_tracing_hooks._ray.data.operators import NO_WORK, Operator, OperatorContext, consumer_in, end_with, shown_name
from ray_tracing_hooks._ray.data.statistics import HELD_BACK, Moments
from ray_tracing_hooks._ray.library_spans import ended_by, followed_by, within
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.current import get_current
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import hidden_frame, is_interruption
from ray_tracing_hooks._safety.guard import guarded
from ray_tracing_hooks._safety.patching import ABSENT, Patches

_EXECUTION = "_ray_tracing_hooks_execution"
"""The attribute of Ray's executor that holds ours. Executors are not pickled."""

_MOST_GRAPH = 4000
"""Characters of the description of the operators that are kept."""


_open: weakref.WeakSet[Execution] = weakref.WeakSet()
"""The executions that have not ended."""


def give_up() -> None:
    """End the spans of executions that are still running when this process disconnects."""
    for execution in list(_open):
        execution.end(None, operators.ABANDONED)


def _of(executor: Any) -> Execution | None:
    found: Execution | None = vars(executor).get(_EXECUTION)
    return found


def _executed(error: BaseException | None, executor: Any, *_args: Any, **_kwargs: Any) -> None:
    execution = _of(executor)
    if execution is not None and error is not None:
        execution.end(error)


def _context_of(executor: Any) -> Context | None:
    execution = _of(executor)
    return execution.context if execution is not None else None


def _ran(_error: BaseException | None, executor: Any) -> None:
    execution = _of(executor)
    if execution is not None:
        execution.loop_ended()


def _note_step(_result: Any, executor: Any, *_args: Any, **_kwargs: Any) -> None:
    execution = _of(executor)
    if execution is not None:
        execution.stepped()


def _shutdown(original: Callable[..., Any]) -> Callable[..., Any]:
    parameters = list(inspect.signature(original).parameters)[1:]

    def error_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = dict(zip(parameters, args, strict=False)) | kwargs
        if given.get("execution_completed") is False:
            # Old versions of Ray only say that there is an error, in the code that handles it.
            return sys.exc_info()[1]
        return given.get("exception")

    def shutdown(self: Any, *args: Any, **kwargs: Any) -> Any:
        execution = _of(self)
        if execution is None or not self._execution_started:
            return original(self, *args, **kwargs)
        error, unwinding = error_of(args, kwargs), execution.unwinding()
        try:
            with hidden_frame:
                return original(self, *args, **kwargs)
        finally:
            execution.end(error, unwinding=unwinding)

    return shutdown


def _begin(executor: Any, dag: Any, *_args: Any, **_kwargs: Any) -> Context | None:
    active = tracing.active
    if active is None:
        return None
    execution = Execution(active, executor, dag)
    setattr(executor, _EXECUTION, execution)
    _open.add(execution)
    with guarded("tracing the operators of a dataset"):
        execution.watch()
    return execution.context


class Execution:
    """One execution of a dataset.

    Attributes:
        context: The context of what belongs to the execution and to none of its operators.
        operators: Its operators, inputs first.
    """

    def __init__(self, active: Tracing, executor: Any, dag: Any) -> None:
        # The executor ends when nothing refers to it any more.
        self._executor = weakref.ref(executor)
        self.dataset_id = str(getattr(executor, "_dataset_id", None) or getattr(executor, "_dataset_tag", ""))
        self.has_ended = False
        self._patches = Patches()
        self._last = dag
        self._is_complete = False
        self._error: BaseException | None = None
        name, run = _name_and_run(self.dataset_id)
        attributes = {
            names.RAY_DATA_DATASET_ID: self.dataset_id,
            **({names.RAY_DATA_RUN: run} if run is not None else {}),
            names.RAY_DATA_CONSUMER: this_iteration.method or consumer_in(sys._getframe(1)),  # noqa: SLF001
            names.RAY_DATA_GRAPH: str(getattr(dag, "dag_str", dag))[:_MOST_GRAPH],
        }
        self.context, self.span = library_spans.begin(active, f"{name} {names.DATASET}", get_current(), attributes)
        self.operators: list[Operator] = []
        self._working: list[Operator] = []
        self._moments = Moments()
        # Not held: it holds what may hold the executor.
        iteration = this_iteration.iteration
        self._iteration = weakref.ref(iteration) if iteration is not None else None
        self._gcs_address = active.process.gcs_address
        self._spilling: ClusterWatch | None = None

    @property
    def executor(self) -> Any:
        return self._executor()

    def watch(self) -> None:
        """Watch its operators, and what the cluster spills, until it ends."""
        self.operators = self._operators_of(self._last)
        self._working = list(self.operators)
        for operator in self.operators:
            self._patches.set(operator.op, HELD_BACK, operator.held_back, back=ABSENT)
            operators.watch(operator, self._patches)
        # Last, since a process that has too many threads starts no other.
        if self.span is not None and self._gcs_address:
            self._spilling = ClusterWatch(self._gcs_address)

    def _operators_of(self, dag: Any) -> list[Operator]:
        found: dict[int, Operator | None] = {}
        around = OperatorContext(self.dataset_id, self.context, self._executor)

        def add(op: Any) -> None:
            if id(op) in found:
                return
            for each in op.input_dependencies:
                add(each)
            position = len(found)
            if type(op).__name__ in NO_WORK:
                found[id(op)] = None
                return
            operator = found[id(op)] = Operator(around, op, shown_name(f"{op.name}_{position}"))
            operator.inputs = [known for each in op.input_dependencies if (known := found[id(each)]) is not None]

        add(dag)
        return [operator for operator in found.values() if operator is not None]

    def unwinding(self) -> BaseException | None:
        """The error that is ending the iteration that it is for, in this thread."""
        iteration = self._iteration() if self._iteration is not None else None
        return iteration.unwinding() if iteration is not None else None

    def stepped(self) -> None:
        """After each step of the executor's loop, in its thread: many times a second, so this takes microseconds."""
        completed = self.executor._has_op_completed  # noqa: SLF001  set in the step
        for operator in self._working:
            if completed.get(operator.op):
                operator.end()
                self._working = [each for each in self._working if each is not operator]
        now = monotonic()
        if now >= self._moments.next:
            self._moments.look(now, [each.timeline for each in self._working if each.span is not None])

    def loop_ended(self) -> None:
        """At the end of the executor's thread, before its operators are shut down."""
        with guarded("tracing the end of an execution of a dataset"):
            executor = self.executor
            completed = executor._has_op_completed or {}  # noqa: SLF001  as above
            self._is_complete = bool(completed.get(self._last))
            node = executor._output_node  # noqa: SLF001  its consumer gets the error from there
            self._error = getattr(node[1] if isinstance(node, tuple) else node, "_exception", None)

    def end(self, error: BaseException | None, outcome: str = "", *, unwinding: BaseException | None = None) -> None:
        """End its spans, once; an ``error`` ended it, or it is not complete and ``unwinding`` ends its iteration."""
        if self.has_ended:
            return
        self.has_ended = True
        _open.discard(self)
        error = error or self._error or (None if self._is_complete else unwinding)
        outcome = outcome or operators.outcome_of(error, is_complete=self._is_complete)
        with guarded("ending the operators of a dataset"):
            self._end_operators(error if outcome == operators.FAILED else None)
        span = self.span
        if span is None:
            return
        with guarded("describing an execution of a dataset"):
            self._describe(span, outcome)
        if error is not None and outcome in {operators.FAILED, operators.CANCELLED}:
            end_with(span, error)
        else:
            span.end()

    def _end_operators(self, error: BaseException | None) -> None:
        """End what is open; the operators whose tasks failed have the error."""
        self._patches.undo()
        for operator in self.operators:
            failed_tasks = getattr(operator.op._metrics, "num_tasks_failed", 0)  # noqa: SLF001
            operator.end(error if failed_tasks else None)

    def _describe(self, span: RecordedSpan, outcome: str) -> None:
        span.set_attribute(names.RAY_DATA_OUTCOME, outcome)
        span.set_attributes(_output(self._last))
        span.set_attributes(statistics.limits_of(self.executor))
        if self._spilling is not None:
            span.set_attributes(self._spilling.end())


def _output(last: Any) -> dict[str, Any]:
    keys = names.RAY_DATA_ROWS, names.RAY_DATA_BYTES, names.RAY_DATA_BLOCKS
    return {key: value for key, value in statistics.of_operator(last, 0).items() if key in keys}


def _name_and_run(dataset_id: str) -> tuple[str, int | None]:
    """The name of the dataset and the number of the run, from an id such as ``dataset_12_0``."""
    name, _, rest = dataset_id.rpartition("_")
    name, _, _ = name.rpartition("_")
    if name and rest.isdigit():
        return shown_name(name), int(rest)
    return "dataset", None


_FIRST = 1.0
"""Seconds before the first question: a shorter execution asks none."""

_INTERVAL = 10.0

_LAST_WAIT = 0.1
"""Seconds that the end of an execution waits for the last answer, at most."""

_TIMEOUT = 5.0


class Spilled(NamedTuple):
    """Bytes that the cluster has spilled and restored since it was started."""

    spilled: int
    restored: int


class ClusterWatch:
    """Watches the cluster at this address of its GCS during one execution."""

    def __init__(self, gcs_address: str) -> None:
        self._gcs_address = gcs_address
        self._ending = threading.Event()
        self._done = threading.Event()
        self._first: Spilled | None = None
        self._last: Spilled | None = None
        self._began = monotonic()
        threading.Thread(target=self._run, name="ray_tracing_hooks-spilling", daemon=True).start()

    def end(self) -> dict[str, int]:
        """Stop; returns what was spilled meanwhile as attributes of the execution, as far as it is known."""
        self._ending.set()
        if monotonic() - self._began > _FIRST:
            self._done.wait(_LAST_WAIT)
        first, last = self._first, self._last
        if first is None or last is None:
            return {}
        found = {
            names.RAY_DATA_SPILLED: last.spilled - first.spilled,
            names.RAY_DATA_RESTORED: last.restored - first.restored,
        }
        return {key: size for key, size in found.items() if size > 0}

    def _run(self) -> None:
        try:
            if not self._ending.wait(_FIRST):
                self._first = self._last = self._ask()
                while not self._ending.wait(_INTERVAL):
                    self._last = self._ask()
                self._last = self._ask()
        except Exception as error:  # what is unknown is left out: the raylet may be gone, or gRPC not installed
            if is_interruption(error):
                raise
        finally:
            self._done.set()

    def _ask(self) -> Spilled:
        from ray._private.internal_api import get_memory_info_reply, get_state_from_address  # noqa: PLC0415  imports gRPC

        totals = get_memory_info_reply(get_state_from_address(self._gcs_address), timeout_seconds=_TIMEOUT).store_stats
        return Spilled(int(totals.spilled_bytes_total), int(totals.restored_bytes_total))


_DOING = "tracing an execution of a dataset"

WRAPPERS = {
    "StreamingExecutor.execute": lambda original: ended_by(_executed, _DOING)(within(_begin, _DOING)(original)),
    "StreamingExecutor.run": lambda original: ended_by(_ran, _DOING)(within(_context_of, _DOING)(original)),
    "StreamingExecutor.shutdown": _shutdown,
    "StreamingExecutor._scheduling_loop_step": followed_by(_note_step, "tracing the steps of an execution"),
}
