"""Replacing an attribute of Ray, once, and putting it back."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

_MARK = "__ray_tracing_hooks_original__"

ABSENT = object()
"""What :meth:`Patches.set` puts back where there was no such attribute."""


class Patches:
    """The replacements that are in place, so that they can be taken out again in reverse order."""

    def __init__(self) -> None:
        self._applied: list[tuple[Any, str, Any]] = []

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> bool:
        """Replace ``owner.name`` by ``make(original)``; False if there is no such attribute in this Ray.

        Wrapping the same attribute a second time does nothing.
        """
        original = vars(owner).get(name)
        if original is None:
            return False
        if hasattr(original, _MARK):
            return True
        replacement = make(original)
        setattr(replacement, _MARK, original)
        _named_alike(replacement, original)
        setattr(owner, name, replacement)
        self._applied.append((owner, name, original))
        return True

    def set(self, owner: Any, name: str, value: Any, *, back: Any) -> None:
        """Set ``owner.name`` to ``value``, until :meth:`undo` sets it to ``back``.

        Doing so a second time changes neither the value nor what is put back.
        """
        if (owner, name) not in self.targets():
            setattr(owner, name, value)
            self._applied.append((owner, name, back))

    def targets(self) -> list[tuple[Any, str]]:
        """What is replaced, as (owner, name)."""
        return [(owner, name) for owner, name, _ in self._applied]

    def undo(self) -> None:
        """Put every original back."""
        while self._applied:
            owner, name, original = self._applied.pop()
            if original is ABSENT:
                vars(owner).pop(name, None)
            else:
                setattr(owner, name, original)


def _named_alike(replacement: Any, original: Any) -> None:
    """So that a function of Ray's that knows the replacement by its name is pickled with a reference to it.

    A deployment with ``@serve.batch``, pickled by value, refers to ``flatten_args``.
    """
    if isinstance(replacement, FunctionType) and isinstance(original, FunctionType):
        for name in ("__module__", "__name__", "__qualname__"):
            setattr(replacement, name, getattr(original, name))


def in_place(patch: Callable[..., bool], patches: Patches, *callbacks: Callable[[], None]) -> bool:
    """Whether this Ray has every place that ``patch`` wraps. One in a module or class that has moved is not there."""
    try:
        return patch(patches, *callbacks)
    except (ImportError, AttributeError):
        return False
