"""Turns the tree of spans into an outline for people: fewer lines with the same content.

The submission and the execution of a call become one item, unwanted spans are left out, and equal siblings are grouped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.call_names import are_few, call_name
from ray_tracing_hooks._insight.model.errors import error_type
from ray_tracing_hooks._insight.model.span import CONSUMER, PRODUCER, Node, Span, walk


@dataclass(slots=True)
class Item:
    """One line of an outline: a span, or the execution of a call together with its submission."""

    span: Span
    submission: Span | None
    children: list[Item]
    is_unexecuted: bool = False
    """Whether it is a successful submission without a recorded execution."""
    shape: int = 0
    """The same for items with equal names, outcomes and children. Tasks of operators only need equal kinds of these."""

    @property
    def name(self) -> str:
        """The span's name; for a call that is one item, the name of the function."""
        return self.span.name if self.submission is None else call_name(self.span.name)

    @property
    def given_name(self) -> str:
        """The name that ``.options(name=...)`` gave the call; empty if none, or if it is the function's own name."""
        spans = (self.span, self.submission)
        given = next((str(name) for span in spans if span and (name := span.attributes.get(names.RAY_NAME))), "")
        function = call_name(self.span.name)
        return "" if given in (function, function.rpartition(".")[2]) else given

    @property
    def stage(self) -> str:
        """Which step of an operator with several it runs; empty if it has one or is no task of an operator."""
        return str(self.span.attributes.get(names.RAY_DATA_STAGE, ""))

    @property
    def attempt(self) -> int:
        """The number of this retry, or of this actor restart; 0 for the first attempt."""
        found = self.span.attributes.get(names.RAY_ATTEMPT)
        return found if isinstance(found, int) else 0

    @property
    def queued_ns(self) -> int | None:
        """From the end of the submission to the start of the execution; None if one of them is missing.

        Never negative, although an execution may start before ``.remote()`` has returned, and clocks of nodes differ.
        """
        return None if self.submission is None else max(0, self.span.start_ns - self.submission.end_ns)


def select(roots: Iterable[Node], keep: Callable[[Span], bool]) -> list[Node]:
    """The spans that ``keep`` wants, with their ancestors, as a new tree."""
    kept: dict[int, Node] = {}
    for node in _children_first(roots):
        children = [kept[id(child)] for child in node.children if id(child) in kept]
        if children or keep(node.span):
            kept[id(node)] = Node(node.span, children, node.executed)
    return [kept[id(root)] for root in roots if id(root) in kept]


def outline(roots: Sequence[Node], *, pair: bool = True) -> list[Item]:
    """The items of a tree. With ``pair``, a submission and the execution that is its only child become one item."""
    made: dict[int, Item] = {}
    shapes: dict[object, int] = {}
    for node in _children_first(roots):
        children = [made.pop(id(child)) for child in node.children]
        if pair and len(children) == 1 and _is_call(node.span, children[0]):
            item = children[0]
            item.submission = node.span
        else:
            item = Item(node.span, None, children, _is_unexecuted(node))
        item.shape = shapes.setdefault(_outcome(item), len(shapes))
        made[id(node)] = item
    return [made[id(root)] for root in roots]


def groups(items: Iterable[Item], *, collapse: bool = True) -> list[list[Item]]:
    """Groups of equal items, in the order of their first items; without ``collapse``, each item alone.

    Items with a few names from ``.options(name=...)`` have a group for each name; with many names, one for all.
    """
    if not collapse:
        return [[item] for item in items]
    found: dict[int, list[Item]] = {}
    for item in items:
        found.setdefault(item.shape, []).append(item)
    return [named for group in found.values() for named in _by_name(group)]


def _by_name(group: list[Item]) -> list[list[Item]]:
    found: dict[str, list[Item]] = {}
    for item in group:
        found.setdefault(item.given_name, []).append(item)
    return list(found.values()) if are_few(len(found), len(group)) else [group]


def _is_call(span: Span, below: Item) -> bool:
    return (
        span.kind == PRODUCER
        and below.span.kind == CONSUMER
        and below.submission is None
        and not span.failed
        and span.state == "ended"
        and _within_functions(call_name(span.name)) == _within_functions(call_name(below.span.name))
    )


def _within_functions(function: str) -> str:
    """The name without the functions around it, which Ray's own tracing leaves out where methods of actors run."""
    return function.rpartition("<locals>.")[2]


def _is_unexecuted(node: Node) -> bool:
    span = node.span
    is_submission = span.kind == PRODUCER and span.name.endswith(names.submission_name(""))
    return is_submission and not node.executed and not span.failed and span.state == "ended"


def _outcome(item: Item) -> object:
    span = item.span
    error = error_type(span) if span.failed else None
    name = item.name
    children = [child.shape for child in item.children]
    if names.RAY_DATA_OPERATOR in span.attributes:
        # Tasks for blocks differ in how often the user's function ran.
        children = list(set(children))
        name = f"{name} {item.stage}"
    how = span.state, span.never_ended, error, span.failed, item.attempt, item.is_unexecuted
    return name, span.kind, how, item.submission is None, tuple(sorted(children))


def _children_first(roots: Iterable[Node]) -> Iterable[Node]:
    # No recursion: a chain of calls may be deeper than Python's stack.
    return reversed(list(walk(roots)))
