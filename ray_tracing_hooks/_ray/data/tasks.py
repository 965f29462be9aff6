"""The names of what operators call: their tasks, and the actors that they make, are named after the operator.

The tasks of map operators, which are nearly all, say whose they are in their arguments (Ray 2.60
``data/_internal/execution/interfaces/task_context.py``). The others are named by the operator that submits them. Actors
that only manage something, such as those for statistics, make no spans.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray.data.blocks import made
from ray_tracing_hooks._ray.data.operators import Operator, shown_name
from ray_tracing_hooks._ray.data.submitting import at_work
from ray_tracing_hooks._ray.dispatch import Naming, Shown

_PART = "data"

_MAP_TASKS = {"_map_task": 2, "submit": 1}
"""The function or method of map operators, and the position of the ``TaskContext`` among its arguments."""

_WORKERS = ("MapWorker", "_MapWorker", "HashShuffleAggregator", "FooterReader")
"""How the names of the classes begin whose actors work on blocks."""

_NO_WORK = frozenset({"get_location", "__ray_ready__"})
"""Methods of such actors that only ask whether they are there."""

_NO_STAGE = frozenset({"_map_task", "_shuffle_map_task", "_shuffle_reduce_task", "submit", "finalize"})
"""Functions whose name says no more than the operator's."""


def of(module: str, class_name: str, function: str) -> Naming | None:
    """The naming of the calls of a function or method of Ray Data, or of the creation of its actors."""
    if not class_name:
        # Functions inside of functions are named with the outer one.
        if function == "_map_task":
            return Naming(_PART, _named_by_context(_MAP_TASKS[function]), made)
        return Naming(_PART, _named_by_operator(_stage(function)), made)
    class_name = class_name.rpartition(".")[2] if "(" not in class_name else class_name
    if not class_name.startswith(_WORKERS) or function in _NO_WORK:
        return None
    if function == "__init__":
        return Naming(_PART, _named_as_creation(class_name))
    if function == "submit" and "MapWorker" in class_name:
        return Naming(_PART, _named_by_context(_MAP_TASKS[function]), made)
    return Naming(_PART, _named_by_operator(_stage(function)), made)


def _count(operator: Operator | None) -> None:
    if operator is not None:
        operator.submitted += 1


def _stage(function: str) -> str:
    return "" if function in _NO_STAGE else function.strip("_")


def _named_by_context(position: int) -> Any:
    def by(args: Any, _kwargs: Any) -> Shown | None:
        _count(at_work.operator)
        context = args[position]
        return Shown(*_of_task(context.op_name, context.task_idx))

    return by


def _of_task(name: str, index: int) -> tuple[str, bytes]:
    name, encoded = _of_operator(name)
    return name, encoded + encode.attribute(names.RAY_DATA_TASK_INDEX, index)


@lru_cache(maxsize=1000)
def _of_operator(name: str) -> tuple[str, bytes]:
    name = shown_name(name)
    return name, encode.attribute(names.RAY_DATA_OPERATOR, name)


def _named_by_operator(stage: str) -> Any:
    attribute = encode.attribute(names.RAY_DATA_STAGE, stage) if stage else b""

    def by(_args: Any, _kwargs: Any) -> Shown | None:
        operator = at_work.operator
        _count(operator)
        return Shown(operator.name, operator.encoded + attribute, is_carried=True) if operator is not None else None

    return by


def _named_as_creation(class_name: str) -> Any:
    def by(_args: Any, _kwargs: Any) -> Shown | None:
        operator = at_work.operator
        if operator is None:
            return None
        operator.actors += 1
        # Older versions of Ray use one class for all operators.
        shown = class_name if operator.name in class_name else f"{class_name.strip('_')}({operator.name})"
        return Shown(shown_name(f"{shown}.__init__"), operator.encoded, is_carried=True)

    return by
