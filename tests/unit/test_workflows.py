"""The workflows run what a contributor runs, and what they publish leads somewhere."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def jobs(workflow: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(workflow.read_text())["jobs"]
    return found


def variable(name: str) -> list[str]:
    """The words that the Makefile sets a variable to."""
    found = re.search(rf"^{name} \?= (.*)$", MAKEFILE, re.MULTILINE)
    assert found
    return found[1].split()


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_step_is_a_command_of_the_makefile(workflow: Path) -> None:
    """So that whatever fails there can be run here."""
    commands = [step["run"] for job in jobs(workflow).values() for step in job.get("steps", []) if "run" in step]
    made = [command.split()[1] for command in commands if command.startswith("make ")]
    assert set(commands) - {"exit 1"} == {command for command in commands if command.startswith("make ")}
    targets = {target.strip('"').replace("$VERSION", "%") for target in made}
    assert targets
    for target in targets:
        assert re.search(rf"^{re.escape(target)}:", MAKEFILE, re.MULTILINE), f"make {target}"


def test_all_versions_of_the_matrix_are_checked() -> None:
    found = jobs(ROOT / ".github" / "workflows" / "ci.yml")
    assert found["rays"]["strategy"]["matrix"]["ray"] == variable("RAYS")
    (usual,) = {
        step["with"]["python-version"] for step in found["test"]["steps"] if "setup-python" in step.get("uses", "")
    }
    assert sorted([usual, *found["pythons"]["strategy"]["matrix"]["python"]]) == variable("PYTHONS")


def test_the_page_on_compatibility_has_all_versions_that_are_checked() -> None:
    """And the lower bound of OpenTelemetry."""
    page = (ROOT / "docs/reference/compatibility.md").read_text()
    rows = {row[0]: row[1:] for row in re.findall(r"^\| (\w+) \| (.*?) \| (.*?) \|$", page, re.MULTILINE)}
    rays, pythons = [*variable("RAYS"), *variable("RAY")], variable("PYTHONS")
    oldest, newest = (ray.rpartition(".")[0] for ray in (rays[0], rays[-1]))
    assert rows["Ray"] == (f"{oldest} to {newest}", ", ".join(rays))
    assert rows["Python"] == (f"{pythons[0]} to {pythons[-1]}", ", ".join(pythons))
    bounds = set(re.findall(r'"opentelemetry-(?:api|sdk)>=([\d.]+)"', (ROOT / "pyproject.toml").read_text()))
    assert {f"{bound} and newer" for bound in bounds} == {rows["OpenTelemetry"][0]}


def test_a_protected_branch_waits_for_every_job() -> None:
    found = jobs(ROOT / ".github" / "workflows" / "ci.yml")
    assert sorted(found["passed"]["needs"]) == sorted(found.keys() - {"passed"})


@pytest.fixture
def metadata() -> ModuleType:
    spec = importlib.util.spec_from_file_location("metadata", ROOT / ".ci" / "metadata.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("link", "whole"),
    [
        ("![a picture](docs/a.png)", "![a picture](https://here.org/o/p/raw/v1/docs/a.png)"),
        ('<img src="docs/a.png">', '<img src="https://here.org/o/p/raw/v1/docs/a.png">'),
        ('<source srcset="docs/a.png">', '<source srcset="https://here.org/o/p/raw/v1/docs/a.png">'),
        ("see [results](tests/README.md).", "see [results](https://here.org/o/p/blob/v1/tests/README.md)."),
        ("[elsewhere](https://example.org/)", "[elsewhere](https://example.org/)"),
        ("[above](#try-it)", "[above](#try-it)"),
    ],
)
def test_links_of_the_readme_lead_to_the_repository_from_a_package_index(
    metadata: ModuleType, link: str, whole: str
) -> None:
    assert metadata.whole_links(link, "https://here.org/o/p", "v1") == whole
