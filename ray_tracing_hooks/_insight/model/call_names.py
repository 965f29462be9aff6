"""How calls are named: by their function, or by `.options(name=...)`."""

from __future__ import annotations

from ray_tracing_hooks import names

MOST_NAMES = 8
"""Names per function. With more names, or if few are used twice, each call probably has its own name."""


QUEUE = "_QueueActor."
"""How the methods of the actor of a ``ray.util.queue.Queue`` begin. ``get`` and ``put`` wait for each other."""


def are_few(different: int, calls: int) -> bool:
    """Whether the names given to a function's calls are few enough to group the calls by them."""
    return different <= MOST_NAMES and calls >= 2 * different


def is_creation(function: str) -> bool:
    """Whether the calls of this function create an actor: it is the constructor of a class."""
    return function.endswith(".__init__")


def call_name(span_name: str) -> str:
    """The function in the name of a submission or execution; any other name unchanged."""
    for named in (names.submission_name(""), names.execution_name("")):
        if span_name.endswith(named):
            return span_name[: -len(named)]
    return span_name
