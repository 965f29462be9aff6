"""Instruments Ray's libraries, but Serve, Data and LLM, twice, puts all back, and prints what differs from before."""

from __future__ import annotations

import inspect
import json
import pickle
import sys
from importlib import import_module
from typing import Any

import ray

from ray_tracing_hooks._ray import libraries
from ray_tracing_hooks._safety.patching import Patches


def places(patches: Patches) -> dict[str, tuple[Any, str]]:
    return {
        f"{getattr(owner, '__qualname__', owner.__name__)}.{name}": (owner, name) for owner, name in patches.targets()
    }


def there(owner: Any, name: str) -> Any:
    return vars(owner)[name]


def pickled(owner: Any, name: str) -> bytes | None:
    """By reference, as far as it can be."""
    try:
        return pickle.dumps(getattr(owner, name))
    except (pickle.PicklingError, AttributeError, TypeError):
        return None


def missing_modules() -> list[str]:
    """Ray's modules that are instrumented and that this Ray does not have."""
    found = []
    for library in libraries.LIBRARIES:
        for row in library.wraps if library.part in PARTS else ():
            try:
                import_module(row.of)
            except ImportError:
                found.append(row.of)
    return sorted(set(found))


PARTS = {library.part for library in libraries.LIBRARIES} - {"serve", "data", "llm"}
"""Serve is instrumented otherwise, and what is replaced in Data is internal: some of it has another signature then. The
engines for LLMs are not installed here.
"""

missing = missing_modules()
first, second = Patches(), Patches()
lost = []
libraries.report = lost.append

# What is there before is known once it is known what is replaced.
libraries.join(PARTS, first, ray.__version__)
found = places(first)
first.undo()
before = {key: there(*place) for key, place in found.items()}
pickles = {key: pickled(*place) for key, place in found.items()}
signatures = {key: inspect.signature(value) for key, value in before.items() if callable(value)}
lost.clear()

libraries.join(PARTS, first, ray.__version__)
libraries.join(PARTS, second, ray.__version__)
after = {key: there(*place) for key, place in found.items()}
result = {
    "places": sorted(found),
    "missing": missing,
    "lost": sorted(set(lost)),
    "not wrapped": [key for key in found if after[key] is before[key]],
    "wrapped twice": sorted(places(second)),
    "signatures": [key for key, value in signatures.items() if inspect.signature(after[key]) != value],
    "pickles": [key for key, place in found.items() if pickled(*place) != pickles[key]],
}
second.undo()
first.undo()
result["not put back"] = [key for key, place in found.items() if there(*place) is not before[key]]
result["modules"] = sorted(name for name in sys.modules if name.startswith("ray.serve"))
print("RESULT " + json.dumps(result))
