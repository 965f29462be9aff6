"""``deploy/kubernetes``: kustomize builds every combination, and each is what Kubernetes and KubeRay accept."""

from __future__ import annotations

import copy
import re
from itertools import chain
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from manifests import (
    CLUSTER_SPECS,
    MANIFESTS,
    OVERLAYS,
    Document,
    combine,
    containers,
    mistakes,
    needs_crds,
    needs_kubectl,
    one,
    overlay,
    pods,
    validate,
)

pytestmark = needs_kubectl

IMAGE = "registry.example/ray-tracing:2.60.0"
GROUP = 2000

# A cluster as users have one: settings of its own, two groups of workers, volumes, a sidecar.
OWN = """
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: theirs, labels: {team: a}}
spec:
  rayVersion: 2.60.0
  headGroupSpec:
    template:
      spec:
        securityContext: {runAsUser: 1000}
        containers:
        - name: ray-head
          image: theirs:1
          env: [{name: MINE, value: "1"}]
          envFrom: [{secretRef: {name: mine}}]
          volumeMounts: [{name: data, mountPath: /data}]
        - {name: other, image: "other:1"}
        volumes: [{name: data, emptyDir: {}}]
  workerGroupSpecs:
  - groupName: small
    replicas: 1
    template: {spec: {containers: [{name: ray-worker, image: "theirs:1"}]}}
  - groupName: large
    replicas: 1
    template:
      spec:
        initContainers: [{name: first, image: "first:1"}]
        containers: [{name: ray-worker, image: "theirs:1", volumeMounts: [{name: data, mountPath: /data}]}]
        volumes: [{name: data, emptyDir: {}}]
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.yaml"
    path.write_text(OWN)
    return path


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_is_valid(name: str) -> None:
    """By Kubernetes' own schemas, strictly, the pods of KubeRay's objects included."""
    documents = overlay(name)
    kinds = {each["kind"] for each in documents}
    assert len(kinds & CLUSTER_SPECS.keys()) == 1
    assert "PodTemplate" not in kinds  # what components copy from is not applied
    for document in documents:
        validate(document)


@needs_crds
@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_is_valid_by_the_definitions_of_kuberay(name: str) -> None:
    (document,) = (each for each in overlay(name) if each["kind"] in CLUSTER_SPECS)
    assert document["apiVersion"] == "ray.io/v1"
    assert mistakes(document) == []
    wrong = copy.deepcopy(document)
    cluster: Document = wrong["spec"]
    for key in CLUSTER_SPECS[wrong["kind"]]:
        cluster = cluster[key]
    cluster["headGroupSpec"]["rayStartParam"] = {}
    cluster["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["imag"] = "x"
    assert len(mistakes(wrong)) == 2


def test_the_checks_find_a_typo() -> None:
    document = copy.deepcopy(one(overlay("collector"), "RayCluster"))
    document["spec"]["headGroupSpec"]["template"]["spec"]["initContainers"][0]["imag"] = "x"
    with pytest.raises(kubernetes_validate.ValidationError, match="imag"):
        validate(document)


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_hook_is_named_once_and_every_ray_container_has_its_settings(name: str) -> None:
    (document,) = (each for each in overlay(name) if each["kind"] in CLUSTER_SPECS)
    assert str(document).count("'tracing-startup-hook': 'ray_tracing_hooks:setup'") == 1
    for _, pod in pods(document):
        ray = pod["spec"]["containers"][0]
        assert {"configMapRef": {"name": "ray-tracing"}} in ray["envFrom"]
        attributes = dict(pair.split("=") for pair in environment(ray)["OTEL_RESOURCE_ATTRIBUTES"].split(","))
        assert attributes == {
            "k8s.container.name": ray["name"],
            "k8s.pod.name": "field metadata.name",
            "k8s.pod.uid": "field metadata.uid",
            "k8s.namespace.name": "field metadata.namespace",
            "k8s.node.name": "field spec.nodeName",
            **{f"ray.io/{key}": f"field metadata.labels['ray.io/{key}']" for key in ("cluster", "node-type", "group")},
        }


def settings_of(documents: list[Document]) -> dict[str, str]:
    """The variables that all Ray containers have."""
    (found,) = (each["data"] for each in documents if "RAY_TRACING_EXPORTERS" in each.get("data", {}))
    assert isinstance(found, dict)
    return found


def environment(container: Document) -> dict[str, str]:
    """The variables of a container as Kubernetes makes them: a reference to a later variable stays as it is."""
    found: dict[str, str] = {}
    for variable in container.get("env", []):
        field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        value = variable.get("value", f"field {field}")
        found[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda match: found.get(match[1], match[0]), value)
    return found


@pytest.mark.parametrize("name", OVERLAYS)
def test_whatever_a_pod_names_is_there(name: str) -> None:
    """ConfigMaps and claims under the names that pods of KubeRay's objects use, volumes, and no variable is open."""
    check_references(overlay(name))


def check_references(documents: list[Document]) -> None:
    there = {(each["kind"], each["metadata"]["name"]) for each in documents}
    checked = 0
    for document in documents:
        for _, pod in pods(document):
            volumes = pod["spec"].get("volumes", [])
            assert len({volume["name"] for volume in volumes}) == len(volumes)
            for volume in volumes:
                if "configMap" in volume:
                    assert ("ConfigMap", volume["configMap"]["name"]) in there
                if "persistentVolumeClaim" in volume:
                    assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in there
            for container in containers(pod):
                assert container["image"]
                mounts = container.get("volumeMounts", [])
                assert {mount["name"] for mount in mounts} <= {volume["name"] for volume in volumes}
                for source in container.get("envFrom", []):
                    if "configMapRef" in source:
                        assert ("ConfigMap", source["configMapRef"]["name"]) in there
                        checked += 1
                for value in environment(container).values():
                    assert "$(" not in value
    assert checked


@pytest.mark.parametrize("name", OVERLAYS)
def test_sidecars_end_after_ray_and_may_do_little(name: str) -> None:
    """Those that read files of Ray's have another user and the group of the volumes, and cannot write to Ray's."""
    (document,) = (each for each in overlay(name) if each["kind"] in CLUSTER_SPECS)
    settings = settings_of(overlay(name))
    for _, pod in pods(document):
        sidecars = pod["spec"]["initContainers"]
        assert all(sidecar["restartPolicy"] == "Always" for sidecar in sidecars)
        # The last one ends first, and sends through the others.
        assert sidecars[-1]["name"] == "ray-tracing-replay"
        assert sidecars[-1]["image"] == pod["spec"]["containers"][0]["image"] == IMAGE
        assert pod["spec"]["terminationGracePeriodSeconds"] == 90
        for sidecar in sidecars[:-1]:
            security = sidecar["securityContext"]
            assert security["runAsNonRoot"]
            assert security["readOnlyRootFilesystem"]
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert pod["spec"]["securityContext"]["fsGroup"] == GROUP == int(settings["RAY_TRACING_GROUP"])
            (ray_files,) = (mount for mount in sidecar["volumeMounts"] if mount["mountPath"] == "/tmp/ray")
            assert ray_files["readOnly"]


@pytest.mark.parametrize("component", ["fluent-bit-sidecar", "collector-sidecar", "graceful-end", "spool-volume"])
def test_a_cluster_of_ones_own_gets_it_in_addition(component: str, own: Path, tmp_path: Path) -> None:
    """In every group of workers, and all that it had is still there."""
    documents = combine(tmp_path, own, "tracing", component)
    cluster = one(documents, "RayCluster")
    before = yaml.safe_load(OWN)
    assert contains(cluster, before)
    check_references([*documents, {"kind": "Secret", "metadata": {"name": "mine"}}])
    validate(cluster)
    for name, pod in pods(cluster):
        (_, had) = next(item for item in pods(before) if item[0] == name)
        assert len(pod["spec"]["containers"]) == len(had["spec"]["containers"])
        assert environment(pod["spec"]["containers"][0])["OTEL_RESOURCE_ATTRIBUTES"].startswith("k8s.container.name=")
        added = len(pod["spec"].get("initContainers", [])) - len(had["spec"].get("initContainers", []))
        assert added == (component != "spool-volume")


def contains(whole: Any, part: Any) -> bool:
    """Whether everything of ``part`` is in ``whole``; lists may have more items."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and contains(whole[key], part[key]) for key in part)
    if isinstance(part, list):
        return isinstance(whole, list) and all(any(contains(item, each) for item in whole) for each in part)
    return bool(whole == part)


@pytest.mark.parametrize("kind", ["rayjob", "rayservice"])
def test_a_cluster_of_ones_own_becomes_a_job_or_a_service(kind: str, own: Path, tmp_path: Path) -> None:
    documents = combine(tmp_path, own, "tracing", "fluent-bit-sidecar", "graceful-end", kind)
    assert not [each for each in documents if each["kind"] == "RayCluster"]
    (document,) = (each for each in documents if each["kind"] in CLUSTER_SPECS)
    assert [name for name, _ in pods(document)] == ["head", "small", "large"]
    for _, pod in pods(document):
        names = [container["name"] for container in pod["spec"]["initContainers"]]
        assert names[-2:] == ["fluent-bit", "ray-tracing-replay"]
    check_references([*documents, {"kind": "Secret", "metadata": {"name": "mine"}}])


def test_images_namespace_and_names_can_be_changed_as_usual(tmp_path: Path) -> None:
    documents = combine(
        tmp_path,
        MANIFESTS / "base",
        "collector",
        "fluent-bit-sidecar",
        "spool-volume",
        namePrefix="team-",
        namespace="ml",
        images=[{"name": "registry.example/ray-tracing", "newName": "theirs", "newTag": "7"}],
    )
    check_references(documents)
    cluster = one(documents, "RayCluster", "team-")
    images = {container["image"] for _, pod in pods(cluster) for container in containers(pod)}
    assert images == {"theirs:7", "fluent/fluent-bit:5.1.1"}
    assert {each["metadata"]["namespace"] for each in documents} == {"ml"}
    job = one(documents, "CronJob")
    assert {container["image"] for _, pod in pods(job) for container in containers(pod)} == {"theirs:7"}


def test_what_a_spool_volume_needs_is_with_it(tmp_path: Path) -> None:
    """The spool is below the claim in the pods of Ray and in the job that sends what they left."""
    documents = combine(tmp_path, MANIFESTS / "base", "collector", "spool-volume")
    folder = settings_of(documents)["RAY_TRACING_SPOOL_DIR"]
    for document in documents:
        validate(document)
    for _, pod in chain(pods(one(documents, "RayCluster")), pods(one(documents, "CronJob"))):
        mounts = {mount["name"]: mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
        assert folder.startswith(mounts["ray-tracing-spool"] + "/")
    assert (
        folder
        in one(documents, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["args"][0]
    )


def test_the_values_for_the_chart_make_the_same_pods() -> None:
    """As its template puts them together: the chart itself is not tested."""
    values = yaml.safe_load((MANIFESTS / "helm" / "values.yaml").read_text())
    assert values["head"]["rayStartParams"] == {"tracing-startup-hook": "ray_tracing_hooks:setup"}
    for group, kind in (("head", "ray-head"), ("worker", "ray-worker")):
        given = values[group]
        container = {
            "name": kind,
            "image": f"{values['image']['repository']}:{values['image']['tag']}",
            "env": values["common"]["containerEnv"],
            "volumeMounts": given["volumeMounts"],
        }
        spec = {"initContainers": given["initContainers"], "containers": [container], "volumes": given["volumes"]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}
        kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
        assert container["image"] == given["initContainers"][0]["image"] == IMAGE
        theirs = next(iter(pods(one(overlay("collector"), "RayCluster"))))[1]["spec"]["containers"][0]
        ours = environment(container)
        settings = settings_of(overlay("collector"))
        expected = {**settings, **environment(theirs)}
        expected["OTEL_RESOURCE_ATTRIBUTES"] = expected["OTEL_RESOURCE_ATTRIBUTES"].partition(",")[2]
        del expected["K8S_CONTAINER_NAME"]
        assert ours == expected


def test_a_folder_of_manifests_is_described() -> None:
    text = (MANIFESTS / "README.md").read_text()
    for path in (MANIFESTS / "components").iterdir():
        assert f"`components/{path.name}`" in text
