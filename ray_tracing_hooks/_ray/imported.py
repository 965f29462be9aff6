"""Calls a function as soon as a module has been imported, without importing it.

A finder at the front of ``sys.meta_path`` knows the modules that are waited for. It finds them with the other finders,
and lets the loader of such a module call the function after the module's own code. It is in place only while something
is waited for, and modules keep their loaders and specs.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ray_tracing_hooks._guard import guarded
from ray_tracing_hooks._patching import Patches


def when_imported(patches: Patches, module: str, call: Callable[[], None]) -> None:
    """Call ``call`` now if this process has imported ``module``, otherwise when it does, unless ``patches`` are undone.

    Errors of ``call`` are reported, and never reach the import.
    """
    if module in sys.modules:
        _call(call)
        return
    waiting = _finder.calls.setdefault(module, [])
    waiting.append(call)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)

    def forget() -> None:
        with contextlib.suppress(ValueError):
            waiting.remove(call)
        if not waiting and _finder.calls.get(module) is waiting:
            _finder.done(module)

    patches.on_undo(forget)


def _call(call: Callable[[], None]) -> None:
    with guarded("tracing a library"):
        call()


class _Finder:
    """Finds the modules that are waited for."""

    def __init__(self) -> None:
        self.calls: dict[str, list[Callable[[], None]]] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's own spec with our loader; None for modules that nothing waits for."""
        if name not in self.calls:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None) if finder is not self else None
            spec: ModuleSpec | None = find(name, path, target) if find is not None else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)
                return spec
        return None

    def imported(self, name: str) -> None:
        """Call what waits for this module."""
        for call in self.done(name):
            _call(call)

    def done(self, name: str) -> list[Callable[[], None]]:
        """Stop waiting for this module; returns what has been waiting."""
        calls = self.calls.pop(name, [])
        if not self.calls:
            with contextlib.suppress(ValueError):
                sys.meta_path.remove(self)
        return calls


class _Loader(Loader):
    """Loads one module with its own loader, which the module and its spec have from then on."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        # Whoever looks at the spec before the import sees what the module's own loader has.
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _finder.imported(module.__name__)


_finder = _Finder()
"""The finder of this process."""
