"""``deploy/kubernetes``: kustomize builds every combination, and each is what Kubernetes and KubeRay accept."""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
import sys
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
    environment,
    mistakes,
    needs_crds,
    needs_kubectl,
    one,
    overlay,
    pods,
    refusals,
    unrestricted,
    validate,
)

from ray_tracing_hooks import names
from ray_tracing_hooks._sdk import resource

pytestmark = needs_kubectl

IMAGE = "registry.example/ray-tracing:2.60.0"
GROUP = 2000
PAGE = (MANIFESTS.parents[1] / "docs/guides/kubernetes.md").read_text()
CLUSTERS = Path(__file__).parent / "clusters"
"""Clusters, a job and a service as users have them. They differ in what components could damage."""
THEIRS: list[Document] = [
    *({"kind": kind, "metadata": {"name": "mine"}} for kind in ("ConfigMap", "Secret", "PersistentVolumeClaim")),
    {"kind": "ConfigMap", "metadata": {"name": "my-ray-tracing"}},
]
"""What they name and have from elsewhere."""

SETS: dict[str, list[str]] = {
    "alone": ["graceful-end"],
    "claim": ["spool-volume", "pod-monitor"],
    "Fluent Bit": ["fluent-bit-sidecar", "graceful-end"],
    "Collector": ["collector-sidecar", "graceful-end"],
    "DaemonSet": ["collector", "network-policy", "fluent-bit-daemonset", "graceful-end", "pod-monitor"],
}
"""Components that are used together."""

TOGETHER = [
    # Two sets for each cluster, others with each: all others run with the slow tests.
    pytest.param(cluster.stem, components, marks=[pytest.mark.slow] if (row + column) % 5 > 1 else [])
    for row, cluster in enumerate(sorted(CLUSTERS.iterdir()))
    for column, components in enumerate(SETS.values())
]


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
    document = cluster_of(overlay(name))
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
    documents = overlay(name)
    document = cluster_of(documents)
    assert str(document).count("'tracing-startup-hook': 'ray_tracing_hooks:setup'") == 1
    for _, pod in pods(document):
        ray = pod["spec"]["containers"][0]
        assert {"configMapRef": {"name": "ray-tracing"}} in ray["envFrom"]
        assert attributes_of(ray, documents) == {"service.name": document["metadata"]["name"], **OF_POD}


OF_POD = {
    "k8s.pod.name": "field metadata.name",
    "k8s.pod.uid": "field metadata.uid",
    "k8s.namespace.name": "field metadata.namespace",
    "k8s.node.name": "field spec.nodeName",
    **{f"ray.io/{key}": f"field metadata.labels['ray.io/{key}']" for key in ("cluster", "node-type", "group")},
}


def attributes_of(container: Document, documents: list[Document]) -> dict[str, Any]:
    """The resource attributes of the hook in this container that it has from outside, where KubeRay runs it."""
    environ = {"RAY_CLUSTER_NAME": "name-x7x9k", **environment(container, documents)}
    of_ray = {names.RESOURCE_WORKER_ID: "0a"}
    without = resource.attributes(of_ray, {})
    return {key: value for key, value in resource.attributes(of_ray, environ).items() if without.get(key) != value}


def cluster_of(documents: list[Document]) -> Document:
    """The RayCluster, RayJob or RayService."""
    (found,) = (each for each in documents if each["kind"] in CLUSTER_SPECS)
    return found


def settings_of(documents: list[Document]) -> dict[str, str]:
    """The variables that all Ray containers have."""
    (found,) = (each["data"] for each in documents if "RAY_TRACING_EXPORTERS" in each.get("data", {}))
    assert isinstance(found, dict)
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
            assert refusals(pod) == []
            for volume in pod["spec"].get("volumes", []):
                if "configMap" in volume:
                    assert ("ConfigMap", volume["configMap"]["name"]) in there
                if "persistentVolumeClaim" in volume:
                    assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in there
            for container in containers(pod):
                for source in container.get("envFrom", []):
                    if "configMapRef" in source:
                        assert ("ConfigMap", source["configMapRef"]["name"]) in there
                        checked += 1
    assert checked


def test_the_checks_find_what_kubernetes_refuses() -> None:
    """A second volume at a path, a reference to a later variable, an image that is not filled in, and the like."""
    (_, pod) = next(pods(copy.deepcopy(one(overlay("collector"), "RayCluster"))))
    ray, sidecar = pod["spec"]["containers"][0], pod["spec"]["initContainers"][0]
    ray["env"].insert(0, {"name": "EARLY", "value": "$(K8S_POD_NAME)"})
    ray["volumeMounts"].append({"name": "scratch", "mountPath": "/tmp/ray/"})
    sidecar["image"] = "ray"
    pod["spec"]["volumes"].append({"name": "ray-logs", "hostPath": {"path": "/"}})
    assert refusals(pod) == [
        "two volumes ray-logs",
        "ray-tracing-replay: no image ray",
        "ray-head: two volumes at /tmp/ray",
        "ray-head: no volume scratch",
        "ray-head: EARLY refers to nothing",
    ]
    del sidecar["securityContext"]["capabilities"], pod["spec"]["securityContext"]["seccompProfile"]
    assert unrestricted(pod) == [
        "volume ray-logs",
        "ray-tracing-replay: capabilities",
        "ray-head: seccompProfile",
    ]


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_strictest_security_standard_admits_the_pods(name: str) -> None:
    for document in overlay(name):
        if document["kind"] != "DaemonSet":  # which reads a folder of the host
            for _, pod in pods(document):
                assert unrestricted(pod) == []


@pytest.mark.parametrize("name", OVERLAYS)
def test_sidecars_end_after_ray_and_may_do_little(name: str) -> None:
    """Those that read files of Ray's have another user and a group in common with Ray, and cannot write to them."""
    settings = settings_of(overlay(name))
    for _, pod in pods(cluster_of(overlay(name))):
        sidecars = pod["spec"]["initContainers"]
        assert all(sidecar["restartPolicy"] == "Always" for sidecar in sidecars)
        # The last one ends first, and sends through the others.
        assert sidecars[-1]["name"] == "ray-tracing-replay"
        assert sidecars[-1]["image"] == pod["spec"]["containers"][0]["image"] == IMAGE
        assert pod["spec"]["terminationGracePeriodSeconds"] == 90
        for sidecar in sidecars[:-1]:
            assert sidecar["securityContext"]["readOnlyRootFilesystem"]
            assert (
                pod["spec"]["securityContext"]["supplementalGroups"] == [GROUP] == [int(settings["RAY_TRACING_GROUP"])]
            )
            of_ray = {mount["name"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
            shared = [mount for mount in sidecar["volumeMounts"] if mount["name"] in of_ray]
            assert "/tmp/ray" in {mount["mountPath"] for mount in shared}
            assert all(mount["readOnly"] for mount in shared)


@pytest.mark.parametrize(("cluster", "components"), TOGETHER)
def test_a_cluster_of_ones_own_gets_it_in_addition(cluster: str, components: list[str], tmp_path: Path) -> None:
    """In every group of workers, and all that it had is still there, as it was."""
    before = yaml.safe_load((CLUSTERS / f"{cluster}.yaml").read_text())
    documents = combine(tmp_path, CLUSTERS / f"{cluster}.yaml", *around(before, components))
    after = cluster_of(documents)
    assert contains(after, before)
    check_references([*documents, *THEIRS])
    for document in documents:
        if document["kind"] != "PodMonitor":  # of the Prometheus Operator
            validate(document)
    image = next(pods(before))[1]["spec"]["containers"][0]["image"]
    for (_, pod), (_, had) in zip(pods(after), pods(before), strict=True):
        theirs = {each["name"] for each in containers(had)}
        ours = [each for each in containers(pod) if each["name"] not in theirs]
        assert len(ours) == len({"graceful-end", "fluent-bit-sidecar", "collector-sidecar"}.intersection(components))
        assert all(each["name"].startswith("ray-tracing-") for each in ours)
        assert {each["image"] for each in ours if each["name"] == "ray-tracing-replay"} <= {image}
        # The group is added, and volumes keep theirs.
        security, was = (each["spec"].get("securityContext", {}) for each in (pod, had))
        assert {**security, "supplementalGroups": []} == {**was, "supplementalGroups": []}
        ray, ray_before = pod["spec"]["containers"][0], had["spec"]["containers"][0]
        variables = environment(ray, documents)
        assert variables.items() >= environment(ray_before).items()
        found = attributes_of(ray, documents)
        given = resource.from_environment(environment(ray_before))
        assert found == {"service.name": before["metadata"]["name"], **OF_POD, **given}


@needs_crds
@pytest.mark.parametrize("cluster", [path.stem for path in sorted(CLUSTERS.iterdir())])
def test_it_is_valid_by_the_definitions_of_kuberay(cluster: str, tmp_path: Path) -> None:
    before = yaml.safe_load((CLUSTERS / f"{cluster}.yaml").read_text())
    components = around(before, ["fluent-bit-sidecar", "pod-monitor", "graceful-end"])
    assert mistakes(before) == []
    assert mistakes(cluster_of(combine(tmp_path, CLUSTERS / f"{cluster}.yaml", *components))) == []


def around(cluster: Document, components: list[str]) -> list[str]:
    """All components for this cluster, as docs/guides/kubernetes.md says."""
    (_, head) = next(pods(cluster))
    mounts = {each["mountPath"] for each in head["spec"]["containers"][0].get("volumeMounts", [])}
    needs_logs = "/tmp/ray" not in mounts and any(each.endswith("-sidecar") for each in components)
    inner = ["tracing", *(["ray-logs"] if needs_logs else []), *components]
    kind = cluster["kind"].lower()
    return inner if kind == "raycluster" else [f"{kind}/open", *inner, f"{kind}/close"]


def test_a_sidecar_without_a_volume_to_read_cannot_be_built(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"volumeMounts.\[mountPath=/tmp/ray\]` is missing"):
        combine(tmp_path, CLUSTERS / "plain.yaml", "tracing", "fluent-bit-sidecar")


def contains(whole: Any, part: Any) -> bool:
    """Whether everything of ``part`` is in ``whole``; lists may have more items, anywhere between those of ``part``."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and contains(whole[key], part[key]) for key in part)
    if isinstance(part, list):
        items = iter(whole)
        return isinstance(whole, list) and all(any(contains(item, each) for item in items) for each in part)
    return bool(whole == part)


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
    assert settings_of(documents)["OTEL_SERVICE_NAME"] == "team-raycluster"
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
    (*_, theirs) = (pod["spec"]["containers"][0] for _, pod in pods(one(overlay("collector"), "RayCluster")))
    expected = environment(theirs, overlay("collector"))
    # The cluster's name is the service's, and the chart's values have one volume.
    del expected["OTEL_SERVICE_NAME"], expected["RAY_TRACING_SPOOL_DIR"]
    groups = [values["head"], values["worker"], *values["additionalWorkerGroups"].values()]
    for given in groups:
        container = {
            "name": "ray",
            "image": f"{values['image']['repository']}:{values['image']['tag']}",
            "env": values["common"]["containerEnv"],
            "volumeMounts": given["volumeMounts"],
            "securityContext": given["securityContext"],
        }
        spec = {
            "initContainers": given["initContainers"],
            "containers": [container],
            "volumes": given["volumes"],
            "securityContext": given["podSecurityContext"],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}
        kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
        assert refusals(pod) == unrestricted(pod) == []
        assert container["image"] == given["initContainers"][0]["image"] == IMAGE
        assert environment(container) == expected
    assert len(groups) == 3


def test_a_folder_of_manifests_is_described() -> None:
    text = (MANIFESTS / "README.md").read_text()
    for path in (MANIFESTS / "components").iterdir():
        assert f"`components/{path.name}`" in text


def test_the_image_can_be_built_from_what_it_copies_of_a_checkout(tmp_path: Path) -> None:
    """The wheel of its first stage, in pure Python."""
    root = MANIFESTS.parents[1]
    for line in (MANIFESTS / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            *sources, target = line.split()[1:]
            assert target.startswith("/source/")
            for source in sources:
                if (root / source).is_dir():
                    shutil.copytree(root / source, tmp_path / target.removeprefix("/source/"))
                else:
                    shutil.copy(root / source, tmp_path)
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "wheels")]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "RAY_TRACING_HOOKS_COMPILE": "0"}, check=True)
    assert [path.suffix for path in (tmp_path / "wheels").iterdir()] == [".whl"]


def test_another_image_of_a_group_can_be_that_of_its_sidecar(tmp_path: Path) -> None:
    """By the replacement in docs/guides/kubernetes.md."""
    (shown,) = re.findall(r"```yaml\n(replacements:\n.*?)```", PAGE, re.DOTALL)
    components = ["tracing", "graceful-end"]
    documents = combine(tmp_path, CLUSTERS / "images.yaml", *components, **yaml.safe_load(shown))
    found = {name: pod["spec"]["initContainers"][-1]["image"] for name, pod in pods(cluster_of(documents))}
    assert found == {name: f"private.example/ray{'-gpu' if name == 'gpu' else ''}:7" for name in ("head", "cpu", "gpu")}


def test_an_endpoint_can_follow_a_prefix(tmp_path: Path) -> None:
    """By the patch in docs/guides/kubernetes.md: kustomize renames the Collector, and does not look into URLs."""
    (shown,) = re.findall(r"```yaml\n(namePrefix:.*?)```", PAGE, re.DOTALL)
    components = ["collector", "fluent-bit-sidecar", "graceful-end"]
    documents = combine(tmp_path, MANIFESTS / "base", *components, **yaml.safe_load(shown))
    service = one(documents, "Service")["metadata"]["name"]
    settings = settings_of(documents)
    assert settings["OTEL_EXPORTER_OTLP_ENDPOINT"] == f"http://{service}:4317"
    assert settings["OTLP_HOST"] == service
