"""``docs/guides/kubernetes.md``: what it shows can be built, and what it names is there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml
from manifests import CLUSTER_SPECS, MANIFESTS, build, needs_kubectl, validate
from store import Store

ROOT = MANIFESTS.parents[1]
TEXT = (ROOT / "docs/guides/kubernetes.md").read_text()
KUSTOMIZATIONS = re.findall(r"```yaml\n# kustomization.yaml\n(.*?)```", TEXT, re.DOTALL)


@needs_kubectl
@pytest.mark.parametrize("number", range(len(KUSTOMIZATIONS)))
def test_a_kustomization_that_it_shows_can_be_built(number: int, tmp_path: Path) -> None:
    shutil.copytree(MANIFESTS, tmp_path / "deploy" / "kubernetes")
    (tmp_path / "kustomization.yaml").write_text(KUSTOMIZATIONS[number])
    documents = build(tmp_path)
    for document in documents:
        validate(document)
    (cluster,) = (each for each in documents if each["kind"] in CLUSTER_SPECS)
    shown = yaml.safe_load(KUSTOMIZATIONS[number])
    for image in shown.get("images", []):
        assert f"'{image['newName']}:{image['newTag']}'" in str(cluster)
        assert image["name"] not in str(cluster)


def test_there_are_as_many_as_are_tested() -> None:
    """The other two are in ``test_manifests.py``."""
    assert len(KUSTOMIZATIONS) == TEXT.count("```yaml") - 2 == 4


def test_its_queries_are_those_of_a_store(tmp_path: Path) -> None:
    (queries,) = re.findall(r"```sql\n(.*?)```", TEXT, re.DOTALL)
    store = Store(tmp_path)
    for query in queries.splitlines():
        assert store.ask(query) == []


def test_what_it_names_is_there() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", TEXT)
    assert not [link for link in links if not (ROOT / "docs/guides" / link).exists()]
    components = set(re.findall(r"`(?:components/)?([\w-]+)`", TEXT)) & {path.name for path in components_there()}
    assert {"graceful-end", "spool-volume", "rayjob", "rayservice", "collector-sidecar"} <= components
    settings = "\n".join(path.read_text() for path in MANIFESTS.rglob("*.yaml"))
    for variable in re.findall(r"`(OTLP_[A-Z]+)`", TEXT):
        assert f"{variable}: " in settings


def components_there() -> list[Path]:
    return list((MANIFESTS / "components").iterdir())
