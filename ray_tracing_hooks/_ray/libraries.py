"""Ray's libraries: each is instrumented in a process that imports it, and nothing of it is imported elsewhere.

A finder at the front of ``sys.meta_path`` knows the modules that are waited for. It finds them with the other finders,
and lets the loader of such a module call a function after the module's own code. It is in place only while something
is waited for, and modules keep their loaders and specs.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ray_tracing_hooks._libraries import LIBRARIES, SERVE, Wrap
from ray_tracing_hooks._safety.guard import guarded, report
from ray_tracing_hooks._safety.patching import Patches, in_place


def join(parts: Iterable[str], patches: Patches, ray_version: str) -> None:
    """Instrument the libraries in ``parts`` that this process has imported, and the others when it imports them.

    For Ray Serve, :func:`joining_serve` does so.
    """
    for library in LIBRARIES:
        if library.part in parts and library is not SERVE:
            for row in library.wraps:
                when_imported(patches, row.of, partial(instrument, library.part, row, patches, ray_version))


def joining_serve(patches: Patches, ray_version: str) -> Callable[[], bool]:
    """A function that wraps the parts of Serve that this process has imported by now.

    It never raises, and can be called repeatedly.

    A process of Serve executes an actor of ``ray.serve._private``, and a process that calls deployments first calls
    Serve's controller. Nothing is done in all other processes.

    It returns True: from now on, calls among Serve's own actors make no spans and carry no context, since the context
    of a request is carried by the request.
    """
    joined: set[Wrap] = set()
    lock = threading.RLock()

    def join_serve() -> bool:
        for row in SERVE.wraps:
            # Serve does not use a module that it has not imported here, and importing it would take a second.
            if row.of not in sys.modules:
                continue
            with guarded("joining Serve"), lock:
                if row not in joined:
                    joined.add(row)
                    instrument(SERVE.part, row, patches, ray_version)
        return True

    return join_serve


def instrument(part: str, row: Wrap, patches: Patches, ray_version: str) -> None:
    """Wrap one place of a library; reports what is lost if this version of Ray, or of an engine, has changed it."""
    wrappers = getattr(import_module(f"{__package__}.{part}.{row.module}"), row.wrappers)
    patch = partial(_wrap_all, sys.modules[row.of], wrappers) if isinstance(wrappers, dict) else wrappers
    if not in_place(patch, patches):
        package = row.of.partition(".")[0]
        version = getattr(sys.modules[package], "__version__", "of unknown version")
        changed = f"Ray {ray_version}" if package == "ray" else f"{package} {version}"
        report(f"{row.lost}: {changed} has changed the code that this package wraps")


def _wrap_all(module: ModuleType, wrappers: dict[str, Callable[[Any], Any]], patches: Patches) -> bool:
    """Apply a table of wrappers (:attr:`Wrap.wrappers`); False if the module lacks one of the places."""
    for place, wrapper in wrappers.items():
        class_name, _, name = place.removesuffix("?").rpartition(".")
        owner = getattr(module, class_name) if class_name else module
        if not patches.wrap(owner, name, wrapper) and not place.endswith("?"):
            return False
    return True


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
