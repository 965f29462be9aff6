"""The call graph and the flame graph with each actor apart: its methods are such as ``Store#93fc54dc.update``."""

from __future__ import annotations

import copy
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ray_tracing_hooks._insight.analysis.flame import Flame, flame
from ray_tracing_hooks._insight.analysis.graph import Graph, graph
from ray_tracing_hooks._insight.model.calls import Calls
from ray_tracing_hooks._insight.model.merge import as_array, as_numpy
from ray_tracing_hooks._insight.model.processes import Places, ProcessPlace

_MOST_ACTORS = 100
"""With more actors, nobody could tell their boxes apart."""

_MOST_AT_FIRST = 40
"""With more actors, the page begins with one box for each class."""


class Apart(NamedTuple):
    called: Graph
    stacks: Flame
    is_first: bool
    """Whether the page begins with them: actors call others of their own class, which one box for it cannot show."""


def apart(calls: Calls, where: Places, ends: array[int], is_failed: Any, called: Graph) -> Apart | None:
    """The graphs with each actor apart; None if no class has several actors that ran methods, or if there are too many.

    ``called`` is the call graph with one box for each class.
    """
    table, execution, call_of = calls.table, as_numpy(calls.execution), as_numpy(calls.call_of)
    ran = np.nonzero(execution >= 0)[0]
    place = np.full(len(calls), -1)
    place[ran] = as_numpy(where.of)[execution[ran]]
    actors = [where.places[each] for each in np.unique(place[ran]).tolist() if len(where.places[each].actors) == 1]
    classes = Counter(each.actors[0].class_name for each in actors)
    if len(actors) > _MOST_ACTORS or max(classes.values(), default=0) < 2:
        return None
    split, named = copy.copy(calls), copy.copy(table)
    split.functions, split.function = _renamed(calls.functions, calls.function, place, where.places)
    place_of = np.where(call_of >= 0, place[call_of], -1) if len(place) else call_of
    named.names, named.name = _renamed(table.names, table.name, place_of, where.places)
    ends_of_calls = ((called.functions[by], called.functions[to]) for by, to in called.calls)
    is_tree = any(len(to.actors) > 1 and by.actor == to.actor for by, to in ends_of_calls)
    stacks = flame(named, ends, is_failed)
    return Apart(graph(split, ends, is_failed), stacks, is_tree and len(actors) <= _MOST_AT_FIRST)


def _renamed(
    texts: Sequence[str], index: array[int], place: Any, places: Sequence[ProcessPlace]
) -> tuple[list[str], array[int]]:
    """The texts and those of single actors, and the index of each call or span in them, given its place or -1."""
    pairs, number = np.unique(np.stack([as_numpy(index), place]), axis=1, return_inverse=True)
    known = {text: position for position, text in enumerate(texts)}
    made = [
        known.setdefault(_of_actor(texts[text], places[each].actors) if each >= 0 else texts[text], len(known))
        for text, each in pairs.T.tolist()
    ]
    return list(known), as_array(np.array(made, np.int64)[number.ravel()], "I")


def without_actor(text: str, places: Sequence[ProcessPlace]) -> str:
    """The text before it was that of a single actor."""
    for each in places:
        for actor in each.actors:
            if text.startswith(f"{actor.label}."):
                return actor.class_name + text[len(actor.label) :]
    return text


def _of_actor(text: str, actors: Sequence[Any]) -> str:
    is_method = len(actors) == 1 and text.startswith(f"{actors[0].class_name}.")
    return actors[0].label + text[len(actors[0].class_name) :] if is_method else text
