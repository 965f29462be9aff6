"""What is installed, and what importing it costs."""

from __future__ import annotations

import importlib.metadata
from types import ModuleType

import ray_tracing_hooks


def test_all_names_what_is_public() -> None:
    """`__all__` holds every public name of the package, and nothing that is not there."""
    public = {
        name
        for name, value in vars(ray_tracing_hooks).items()
        if not name.startswith("_") and not isinstance(value, ModuleType) and name != "annotations"
    }
    assert set(ray_tracing_hooks.__all__) - {"__version__"} == public


def test_the_version_is_that_of_the_distribution() -> None:
    """There is one place for the version."""
    assert ray_tracing_hooks.__version__ == importlib.metadata.version("ray-tracing-hooks")


def test_the_wheel_tells_type_checkers_that_it_is_typed() -> None:
    """The installed distribution holds py.typed and the license."""
    files = {str(file) for file in importlib.metadata.files("ray-tracing-hooks") or ()}
    assert "ray_tracing_hooks/py.typed" in files
    assert any(file.endswith("LICENSE") for file in files)


def test_the_tests_run_against_the_installed_package() -> None:
    """Not against the checkout, which Ray's workers would not see."""
    (init,) = (
        file
        for file in importlib.metadata.files("ray-tracing-hooks") or ()
        if str(file) == "ray_tracing_hooks/__init__.py"
    )
    assert str(init.locate()) == ray_tracing_hooks.__file__
