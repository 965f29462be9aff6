"""Which part of the package may import which: docs/ARCHITECTURE.md draws it, and here it is checked."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import imports
import pytest

from ray_tracing_hooks._libraries import LIBRARIES

ROOT = Path(__file__).parents[2]

OF_LIBRARIES = [f"_ray.{library.part}" for library in LIBRARIES]

BASICS = """
names _version _safety
_libraries          names
_settings           _safety _libraries
_hotpath            -
_compiled           _hotpath _settings
_clock              _compiled _hotpath _settings
"""
"""What everything below may import. The parts of the first line import nothing of this package."""

MAY_IMPORT = """
_formats            -
_spool              _formats
_record             _spool _formats

_control            -
_logs               _record _spool _formats
_sdk                _record _spool _formats
_propagators        _sdk _ship.sinks _record _spool _formats
_ray                _record _formats
_ray.LIBRARY        _ray _record _formats

_ship               _ship.sinks _ship.metrics _ship.transport _spool _formats
_ship.metrics       _ship _ship.sinks _ship.transport _formats
_ship.sinks         _ship _ship.transport _formats
_ship.transport     _ship _formats

_insight.model      _formats
_insight.ingest     _insight.model _spool _formats
_insight.analysis   _insight.model _formats
_insight.views      _insight.analysis _insight.ingest _insight.model _formats
_insight.store      _insight.views _insight.analysis _insight.ingest _insight.model _formats

_connection         _control _ray _sdk _logs _propagators _ship _ship.sinks _record _spool _formats
_startup            _connection _ray
_run                _startup _ray ray_tracing_hooks
_ops                _connection _control _ray _ship _ship.sinks _ship.transport _spool _formats
_ops                _insight.store _insight.analysis ray_tracing_hooks
_cli                _ops _run _ray _ship _ship.sinks _spool _formats ray_tracing_hooks
_cli                _insight.store _insight.views _insight.analysis _insight.ingest _insight.model

ray_tracing_hooks   _startup
local               _startup
otlp                _startup
jaeger              _startup
skywalking          _startup
serve               _startup
jobs                _ray
rl                  _ray _record
testing             _startup _insight.ingest _insight.model
__main__            _cli
"""
"""A line names a part, which is a module or a folder with all that has no line of its own, and what it may import.
``_ray.LIBRARY`` is the folder of each of Ray's libraries.

What stands lower uses what stands higher. Within a part a module may import any other, as long as there is no cycle.
"""

HOOKS = ["ray_tracing_hooks", "local", "otlp", "jaeger", "skywalking", "serve", "jobs", "rl"]
"""What Ray imports in every process, and what users import in theirs."""

SHIPPER = ["_ship.__main__"]

ANALYSIS_ONLY = {"numpy", "msgspec", "pyarrow", "click", "scipy", "ruptures"}
"""Packages that only the analysis and the command line use. A worker would pay for them."""


MAY_IMPORT_RAY = {
    *("_ray", *OF_LIBRARIES),
    "_run",  # `ray-tracing-hooks run` prepares a program that connects to Ray itself
    "_ops",  # asks a running cluster
    "_cli",  # `ray-tracing-hooks states` does so too
    "jobs",  # the wrapper around Ray's own client for jobs
}


def table() -> dict[str, set[str]]:
    basics, rows = BASICS.strip().splitlines(), MAY_IMPORT.strip().splitlines()
    found: dict[str, set[str]] = {name: set() for name in basics[0].split()}
    for line in (*basics[1:], *filter(None, rows)):
        part, *allowed = line.split()
        for each in OF_LIBRARIES if part == "_ray.LIBRARY" else [part]:
            found.setdefault(each, set()).update(set(allowed) - {"-"})
    shared = {line.split()[0] for line in basics[1:]} | set(basics[0].split())
    return {part: allowed if part in shared else allowed | shared for part, allowed in found.items()}


ALLOWED = table()


@cache
def graph() -> imports.Graph:
    """Read by the tests, not when they are collected, which every process of a run does."""
    return imports.read(ROOT / imports.PACKAGE)


def part_of(module: str) -> str:
    """The part with the longest name that the module is, or is in."""
    return max((part for part in ALLOWED if f"{module}.".startswith(f"{part}.")), key=len, default="")


def forbidden() -> set[tuple[str, str]]:
    """Imports that the table does not allow. A folder without code of its own may be imported with what is in it."""
    return {
        (module, imported)
        for module, modules in graph().inside.items()
        for imported in modules
        if part_of(imported) not in {part_of(module), *ALLOWED.get(part_of(module), ())}
        and not any(one.startswith(f"{imported}.") for one in modules)
    }


def test_every_module_is_in_a_part() -> None:
    assert [module for module in graph().inside if not part_of(module)] == ["_insight"]  # a folder of parts
    assert {part for allowed in ALLOWED.values() for part in allowed} - ALLOWED.keys() == set()


def test_no_part_imports_what_it_may_not() -> None:
    found = forbidden()
    assert not found, f"not in the table of {Path(__file__).name}: {sorted(found)}"


def test_no_module_imports_itself_through_others() -> None:
    found = graph().in_cycles()
    assert not found, f"cycles of imports: {sorted(found)}"


@pytest.mark.parametrize("module", HOOKS + SHIPPER)
def test_traced_processes_and_shippers_never_import_the_analysis(module: str) -> None:
    """Not even in a function that few call: they would import it where it costs most."""
    reached = graph().reachable(module)
    assert not {one for one in reached if one.startswith(("_insight", "_cli"))}
    assert not {
        (one, name) for one in reached for name in graph().outside[one] if name.partition(".")[0] in ANALYSIS_ONLY
    }


def test_few_parts_import_ray() -> None:
    """The others work where no Ray is installed, and do not break when Ray changes."""
    outside = graph().outside.items()
    found = {module for module, names in outside if any(f"{name}.".startswith("ray.") for name in names)}
    assert {part_of(module) for module in found} <= MAY_IMPORT_RAY


def test_packages_that_many_import_have_nothing_in_their_own_file() -> None:
    """Whoever imports one module of a package imports its ``__init__`` too: with it, all that this imports."""
    busy = {module for module in graph().inside if (ROOT / imports.PACKAGE / module.replace(".", "/")).is_dir()}
    found = {module for module in busy if graph().inside[module] or graph().outside[module] - {"__future__"}}
    assert found - {"_cli"} <= WITH_CODE


WITH_CODE = {
    "_cli.compare",  # the command
    "_cli.demo",  # the command
    "_cli.summary",  # the command
    "_connection",  # the tracing of a process: what `_startup` makes
    "_insight.analysis.findings",  # the list of all findings
    "_ops.checks",  # the list of all checks
    "_insight.views.exports",  # the table of formats
    "_insight.views.page",  # the report as one file
}
