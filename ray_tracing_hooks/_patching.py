"""Replacing an attribute of Ray, once, and putting it back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import FunctionType
from typing import Any

_MARK = "__ray_tracing_hooks_original__"

ABSENT = object()
"""What :meth:`Patches.set` puts back where there was no such attribute."""

_CALL = object()
"""Stands for the owner where nothing is replaced, and a function is to be called."""


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

    def wrap_within(self, owner: Any, name: str, make: Callable[[Any], Any]) -> bool:
        """As :meth:`wrap`, below the outermost decorator of ``owner.name`` if it has one.

        So ``owner.name`` stays the very function that it was, whoever holds it: it is pickled, shown and compared as
        without us. And what the decorator does comes first. With Ray's ``wrap_auto_init`` that is to connect, where the
        program has not called ``ray.init()``, and so to set up tracing: the first call is then traced like others.
        """
        cell = _cell_of_decorated(vars(owner).get(name))
        if cell is None:
            return self.wrap(owner, name, make)
        original = cell.cell_contents
        if not hasattr(original, _MARK):
            replacement = make(original)
            setattr(replacement, _MARK, original)
            _named_alike(replacement, original)
            self.set(cell, "cell_contents", replacement, back=original)
        return True

    def set(self, owner: Any, name: str, value: Any, *, back: Any) -> None:
        """Set ``owner.name`` to ``value``, until :meth:`undo` sets it to ``back``.

        Doing so a second time changes neither the value nor what is put back.
        """
        if (owner, name) not in self.targets():
            setattr(owner, name, value)
            self._applied.append((owner, name, back))

    def on_undo(self, call: Callable[[], None]) -> None:
        """Call this when the replacements are taken out, before those that were made earlier."""
        self._applied.append((_CALL, "", call))

    def targets(self) -> list[tuple[Any, str]]:
        """What is replaced, as (owner, name)."""
        return [(owner, name) for owner, name, _ in self._applied if owner is not _CALL]

    def undo(self) -> None:
        """Put every original back."""
        while self._applied:
            owner, name, original = self._applied.pop()
            if owner is _CALL:
                original()
            elif original is ABSENT:
                vars(owner).pop(name, None)
            else:
                setattr(owner, name, original)


def _cell_of_decorated(function: Any) -> Any:
    """Where a decorator made by ``functools.wraps`` keeps what it calls; None for another function."""
    decorated = getattr(function, "__wrapped__", None)
    if decorated is None:
        return None
    for cell in getattr(function, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # an empty one
            contents = cell.cell_contents
            # What is ours is marked with what it stands for. Of others nothing is asked: Ray's stub of a client, which
            # `client_mode_hook` keeps beside the function, raises whatever one asks of it before it is connected.
            if contents is decorated or (
                isinstance(contents, FunctionType) and vars(contents).get(_MARK, contents) is decorated
            ):
                return cell
    return None


def _named_alike(replacement: Any, original: Any) -> None:
    """So that a function of Ray's that knows the replacement by its name is pickled with a reference to it.

    A deployment with ``@serve.batch``, pickled by value, refers to ``flatten_args``.
    """
    if isinstance(replacement, FunctionType) and isinstance(original, FunctionType):
        for name in ("__module__", "__name__", "__qualname__"):
            setattr(replacement, name, getattr(original, name))


def in_place(patch: Callable[..., bool], patches: Patches, *handed: Any) -> bool:
    """Whether this Ray has every place that ``patch`` wraps. One in a module or class that has moved is not there.

    ``handed`` are the further arguments of ``patch``.
    """
    try:
        return patch(patches, *handed)
    except (ImportError, AttributeError):
        return False
