"""A function is called once a module has been imported, and the import is as it would be without."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from ray_tracing_hooks._ray.libraries import when_imported
from ray_tracing_hooks._safety import guard
from ray_tracing_hooks._safety.patching import Patches

Module = Callable[..., str]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Module]:
    """Makes an importable module with this code, and returns its name."""
    monkeypatch.syspath_prepend(tmp_path)
    made: list[str] = []

    def make(code: str = "value = 1") -> str:
        made.append(f"waited_for_{len(made)}")
        (tmp_path / f"{made[-1]}.py").write_text(code)
        importlib.invalidate_caches()
        return made[-1]

    before = list(sys.meta_path)
    yield make
    assert sys.meta_path == before, "nothing stays in place"
    for name in made:
        sys.modules.pop(name, None)


def test_it_is_called_when_the_module_is_complete(module: Module) -> None:
    name, seen = module(), []
    when_imported(Patches(), name, lambda: seen.append(sys.modules[name].value))
    assert seen == []
    importlib.import_module(name)
    assert seen == [1]


def test_it_is_called_at_once_for_a_module_that_is_there() -> None:
    seen: list[str] = []
    when_imported(Patches(), "json", lambda: seen.append("called"))
    assert seen == ["called"]


def test_the_module_has_its_own_loader_and_spec(module: Module) -> None:
    name = module("loader = __loader__, __spec__.loader")
    when_imported(Patches(), name, lambda: None)
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader.get_filename(name) == spec.origin  # type: ignore[union-attr]
    imported = importlib.import_module(name)
    for loader in (*imported.loader, imported.__loader__, imported.__spec__.loader):  # type: ignore[union-attr]
        assert type(loader) is SourceFileLoader


def test_undoing_the_patches_ends_the_wait(module: Module) -> None:
    name, patches = module(), Patches()
    when_imported(patches, name, lambda: pytest.fail("called"))
    patches.undo()
    importlib.import_module(name)


def test_several_wait_for_one_module(module: Module) -> None:
    name, patches, seen = module(), Patches(), []
    when_imported(patches, name, lambda: pytest.fail("called"))
    for number in (1, 2):
        when_imported(Patches(), name, lambda number=number: seen.append(number))  # type: ignore[misc]
    patches.undo()
    importlib.import_module(name)
    assert seen == [1, 2]


def test_an_error_in_it_is_reported_and_does_not_reach_the_import(module: Module) -> None:
    name = module()
    reports: list[str] = []
    guard.set_reporter(reports.append)
    when_imported(Patches(), name, lambda: 1 / 0)  # type: ignore[arg-type]
    assert importlib.import_module(name).value == 1
    assert len(reports) == 1
    assert "ZeroDivisionError" in reports[0]


def test_a_module_that_fails_is_waited_for_again(module: Module, tmp_path: Path) -> None:
    name, seen, patches = module("raise KeyError('here')"), [], Patches()
    when_imported(patches, name, lambda: seen.append("called"))
    with pytest.raises(KeyError):
        importlib.import_module(name)
    assert seen == []
    (tmp_path / f"{name}.py").write_text("fixed = True")
    importlib.invalidate_caches()
    assert importlib.import_module(name).fixed
    assert seen == ["called"]


@pytest.mark.usefixtures("module")
def test_a_module_that_does_not_exist_is_not_found() -> None:
    patches = Patches()
    when_imported(patches, "waited_for_in_vain", lambda: None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("waited_for_in_vain")
    assert importlib.util.find_spec("waited_for_in_vain") is None
    patches.undo()
