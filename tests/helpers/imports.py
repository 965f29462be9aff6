"""The import graph of the package, read from its sources: nothing is imported, and imports in functions count too."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

PACKAGE = "ray_tracing_hooks"


class Graph(NamedTuple):
    """Modules by their names without that of the package, which itself is called ``ray_tracing_hooks``."""

    inside: Mapping[str, frozenset[str]]
    """By module, the modules of this package that it imports."""
    outside: Mapping[str, frozenset[str]]
    """By module, the modules of others that it imports."""

    def reachable(self, module: str) -> frozenset[str]:
        """The module and all of this package that it may cause to be imported."""
        found, ahead = {module}, [module]
        while ahead:
            new = self.inside[ahead.pop()] - found
            found |= new
            ahead += new
        return frozenset(found)

    def in_cycles(self) -> frozenset[str]:
        """The modules that import themselves, through others."""
        return frozenset(
            module for module, imported in self.inside.items() if any(module in self.reachable(one) for one in imported)
        )


def read(root: Path) -> Graph:
    """The graph of the package whose folder is ``root``."""
    # A compiled module has a stub.
    files = sorted([*root.rglob("*.py"), *root.rglob("*.pyi")])
    paths = {_name(path.relative_to(root)): path for path in files}
    inside, outside = {}, {}
    for module, path in paths.items():
        names = set(_imported(path, module, paths))
        own = {_own(name) for name in names if name == PACKAGE or name.startswith(f"{PACKAGE}.")}
        inside[module] = frozenset(_with_packages(own - {module}, module, paths))
        outside[module] = frozenset(names - {f"{PACKAGE}.{name}" for name in own} - {PACKAGE})
    return Graph(inside, outside)


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or PACKAGE


def _own(name: str) -> str:
    return name.removeprefix(f"{PACKAGE}.")


def _imported(path: Path, module: str, paths: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module, f"{module} has a relative import"
            for alias in node.names:
                # What is imported from a package is a module of it, or what its ``__init__`` defines.
                submodule = f"{node.module}.{alias.name}"
                yield submodule if _own(submodule) in paths else node.module


def _with_packages(imported: Iterable[str], module: str, paths: Mapping[str, Path]) -> Iterator[str]:
    """The modules, and the packages around them that are imported before: not those around the importing module."""
    for name in imported:
        yield name
        while "." in name:
            name = name.rpartition(".")[0]  # noqa: PLW2901  outwards
            if name in paths and not f"{module}.".startswith(f"{name}."):
                yield name
