"""Replacing an attribute of Ray, or of another library, once, and putting it back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import FunctionType
from typing import Any

_MARK = "__ray_tracing_hooks_original__"

ABSENT = object()
"""What :meth:`Patches.set` puts back where the attribute did not exist."""

_CALL = object()
"""Takes the place of the owner in an entry that is a function to call on undo."""


class Patches:
    """The replacements in place, so that they can be undone in reverse order.

    If they are ``shared``, other libraries replace methods of these classes too, inherited ones as well, and their
    replacement may call ours. Then ours stays in place, and has to do nothing but call the original.
    """

    def __init__(self, *, shared: bool = False) -> None:
        self._shared = shared
        self._applied: list[tuple[Any, str, Any]] = []
        self._targets: dict[tuple[int, str], Any] = {}
        """What is in place, by the id of its owner and its name: an execution of Ray Data may have thousands."""

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> bool:
        """Replace ``owner.name`` by ``make(original)``; False if this Ray has no such attribute.

        Wrapping the same attribute a second time does nothing.
        """
        original = back = vars(owner).get(name)
        if self._shared and original is None:
            original, back = getattr(owner, name), ABSENT
        if original is None:
            return False
        if not hasattr(original, _MARK):
            self.set(owner, name, _made(make, original), back=back)
        return True

    def wrap_within(self, owner: Any, name: str, make: Callable[[Any], Any]) -> bool:
        """Like :meth:`wrap`, but below the outermost decorator of ``owner.name`` if it has one.

        ``owner.name`` then stays the same function object for every holder: it is pickled, shown and compared as
        without tracing. And the decorator runs first. Ray's ``wrap_auto_init`` connects where the program has not
        called ``ray.init()``, and so sets up tracing: the first call is then traced like the others.
        """
        cell = _cell_of_decorated(vars(owner).get(name))
        if cell is None:
            return self.wrap(owner, name, make)
        original = cell.cell_contents
        if not hasattr(original, _MARK):
            self.set(cell, "cell_contents", _made(make, original), back=original)
        return True

    def set(self, owner: Any, name: str, value: Any, *, back: Any) -> None:
        """Set ``owner.name`` to ``value``, until :meth:`undo` sets it to ``back``.

        A second call changes neither the value nor what is put back.
        """
        if (id(owner), name) not in self._targets:
            setattr(owner, name, value)
            self._applied.append((owner, name, back))
            self._targets[id(owner), name] = value

    def on_undo(self, call: Callable[[], None]) -> None:
        """Register a function for :meth:`undo`, which calls it before it undoes earlier replacements."""
        self._applied.append((_CALL, "", call))

    def targets(self) -> list[tuple[Any, str]]:
        """The replaced attributes, as (owner, name)."""
        return [(owner, name) for owner, name, _ in self._applied if owner is not _CALL]

    def undo(self) -> None:
        """Put every original back."""
        kept = []
        while self._applied:
            owner, name, original = self._applied.pop()
            if owner is _CALL:
                original()
                continue
            if self._shared and vars(owner).get(name) is not self._targets[id(owner), name]:
                kept.append((owner, name, original))
                continue
            self._targets.pop((id(owner), name), None)
            if original is ABSENT:
                if name in vars(owner):
                    delattr(owner, name)
            else:
                setattr(owner, name, original)
        self._applied += reversed(kept)


def _cell_of_decorated(function: Any) -> Any:
    """The closure cell in which a decorator made with ``functools.wraps`` keeps its function; None without one."""
    decorated = getattr(function, "__wrapped__", None)
    if decorated is None:
        return None
    for cell in getattr(function, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # an empty one
            contents = cell.cell_contents
            if contents is decorated or original_of(contents) is decorated:
                return cell
    return None


def original_of(value: Any) -> Any:
    """The original with which a replacement of ours is marked; None for anything else.

    Runs no code of the value: Ray's stub of a client, which `client_mode_hook` keeps beside a function, raises on any
    attribute access before it is connected.
    """
    try:
        return object.__getattribute__(value, "__dict__").get(_MARK)
    except AttributeError:
        return None


def _made(make: Callable[[Any], Any], original: Any) -> Any:
    """The replacement, marked with the original, and with its name, so that functions of Ray that refer to it by name
    pickle as before: a deployment with ``@serve.batch``, pickled by value, refers to ``flatten_args``.
    """
    replacement = make(original)
    setattr(replacement, _MARK, original)
    if isinstance(original, FunctionType):
        for name in ("__module__", "__name__", "__qualname__"):
            setattr(replacement, name, getattr(original, name))
    return replacement


def in_place(patch: Callable[..., bool], patches: Patches, *handed: Any) -> bool:
    """Apply ``patch``; False if this Ray lacks one of the places that it wraps, or has moved one elsewhere.

    ``handed`` are further arguments for ``patch``.
    """
    try:
        return patch(patches, *handed)
    except (ImportError, AttributeError):
        return False
