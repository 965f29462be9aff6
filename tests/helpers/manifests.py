"""The manifests of ``deploy/kubernetes`` as kustomize builds them, and what checks them."""

from __future__ import annotations

import copy
import functools
import os
import posixpath
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

MANIFESTS = Path(__file__).parents[2] / "deploy" / "kubernetes"
OVERLAYS = sorted(path.name for path in (MANIFESTS / "overlays").iterdir())

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl, whose kustomize builds these")

CRDS = os.environ.get("KUBERAY_CRDS", "")
needs_crds = pytest.mark.skipif(
    not CRDS, reason="KUBERAY_CRDS does not name a folder with KubeRay's ray.io_rayclusters.yaml and its like"
)

Document = dict[str, Any]

CLUSTER_SPECS = {"RayCluster": (), "RayJob": ("rayClusterSpec",), "RayService": ("rayClusterConfig",)}
"""Where each kind of KubeRay has the specification of its cluster."""


def build(folder: Path) -> list[Document]:
    """What ``kubectl kustomize`` makes of a folder."""
    command = ["kubectl", "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return list(yaml.safe_load_all(done.stdout))


@functools.cache
def overlay(name: str) -> list[Document]:
    return build(MANIFESTS / "overlays" / name)


def combine(folder: Path, resource: Path, *components: str, **fields: Any) -> list[Document]:
    """What a kustomization in this folder, as a user would write one, makes of a resource and components."""
    target = folder / "kustomization"
    target.mkdir(parents=True)
    own = resource if resource.is_dir() else Path(shutil.copy(resource, target / "cluster.yaml"))
    kustomization = {
        "resources": [os.path.relpath(own.resolve(), target.resolve())],
        "components": [
            os.path.relpath((MANIFESTS / "components" / name).resolve(), target.resolve()) for name in components
        ],
        **fields,
    }
    (target / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return build(target)


def one(documents: list[Document], kind: str, name: str = "") -> Document:
    """The only document of a kind, or of a kind whose name begins so."""
    (found,) = (each for each in documents if each["kind"] == kind and each["metadata"]["name"].startswith(name))
    return found


def pods(document: Document) -> Iterator[tuple[str, Document]]:
    """The pod templates in an object, with a name for each."""
    spec = document.get("spec", {})
    if document["kind"] in CLUSTER_SPECS:
        for key in CLUSTER_SPECS[document["kind"]]:
            spec = spec[key]
        yield "head", spec["headGroupSpec"]["template"]
        for group in spec["workerGroupSpecs"]:
            yield group["groupName"], group["template"]
    elif document["kind"] == "CronJob":
        yield "job", spec["jobTemplate"]["spec"]["template"]
    elif "template" in spec:
        yield "pod", spec["template"]


def containers(pod: Document) -> list[Document]:
    """All containers of a pod template, sidecars first, as Kubernetes starts them."""
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def environment(container: Document, documents: Iterable[Document] = ()) -> dict[str, str]:
    """The variables of a container as Kubernetes makes them, with those of the ConfigMaps in ``documents``.

    The values of ``env`` may refer to earlier ones there; any other reference stays as it is.
    """
    maps = {each["metadata"]["name"]: each["data"] for each in documents if each["kind"] == "ConfigMap"}
    found: dict[str, str] = {}
    for source in container.get("envFrom", []):
        found.update(maps.get(source.get("configMapRef", {}).get("name"), {}))
    earlier: dict[str, str] = {}
    for variable in container.get("env", []):
        field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        value = variable.get("value", f"field {field}")
        earlier[variable["name"]] = _REFERENCE.sub(lambda match: earlier.get(match[1], match[0]), value)
    return {**found, **earlier}


_REFERENCE = re.compile(r"(?<!\$)\$\(([-.\w]+)\)")


def refusals(pod: Document) -> list[str]:
    """Why Kubernetes would refuse a pod, or start it with variables not expanded; its schemas say none of it."""
    spec = pod["spec"]
    volumes = [volume["name"] for volume in spec.get("volumes", [])]
    found = [f"two volumes {name}" for name in _repeated(volumes)]
    found += [f"two containers {name}" for name in _repeated([each["name"] for each in containers(pod)])]
    for container in containers(pod):
        mounts = container.get("volumeMounts", [])
        wrong = [
            f"two volumes at {path}" for path in _repeated([posixpath.normpath(each["mountPath"]) for each in mounts])
        ]
        wrong += [f"no volume {each['name']}" for each in mounts if each["name"] not in volumes]
        wrong += [f"two variables {name}" for name in _repeated([each["name"] for each in container.get("env", [])])]
        wrong += [
            f"{key} refers to nothing" for key, value in environment(container).items() if _REFERENCE.search(value)
        ]
        wrong += [f"two ports {name}" for name in _repeated([each["name"] for each in container.get("ports", [])])]
        if not re.fullmatch(r"[\w./-]+:[\w.-]+", container.get("image", "")):
            wrong.append(f"no image {container.get('image')}")
        found += [f"{container['name']}: {each}" for each in wrong]
    return found


def _repeated(names: list[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def unrestricted(pod: Document) -> list[str]:
    """What the level ``restricted`` of Kubernetes' Pod Security Standards says against a pod."""
    kinds = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
    volumes = pod["spec"].get("volumes", [])
    found = [f"volume {volume['name']}" for volume in volumes if not kinds & volume.keys()]
    for container in containers(pod):
        security = {**pod["spec"].get("securityContext", {}), **container.get("securityContext", {})}
        expected = {
            "runAsNonRoot": security.get("runAsNonRoot") is True and security.get("runAsUser") != 0,
            "seccompProfile": security.get("seccompProfile", {}).get("type") in {"RuntimeDefault", "Localhost"},
            "allowPrivilegeEscalation": security.get("allowPrivilegeEscalation") is False,
            "capabilities": security.get("capabilities") == {"drop": ["ALL"]},
        }
        found += [f"{container['name']}: {key}" for key, is_right in expected.items() if not is_right]
    return found


def validate(document: Document) -> None:
    """Check a built-in object, or the pods of one of KubeRay's, as the API server does with strict field validation."""
    version = kubernetes_validate.latest_version()
    if document["kind"] not in CLUSTER_SPECS:
        kubernetes_validate.validate(document, version, strict=True)
        return
    for name, pod in pods(document):
        whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **pod.get("metadata", {})}}
        kubernetes_validate.validate({**whole, "spec": pod["spec"]}, version, strict=True)


@functools.cache
def _schema(kind: str) -> Document:
    """KubeRay's schema of ``ray.io/v1``, in which an object with known fields has no others."""
    text = Path(CRDS, f"ray.io_{kind.lower()}s.yaml").read_text()
    crd = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    (schema,) = (version["schema"]["openAPIV3Schema"] for version in crd["spec"]["versions"] if version["name"] == "v1")
    found: Document = _strict(copy.deepcopy(schema))
    found["properties"]["metadata"] = {"type": "object"}
    return found


def _strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: _strict(value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        schema.pop("type", None)
    is_open = "additionalProperties" in schema or schema.get("x-kubernetes-preserve-unknown-fields")
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict) and not is_open:
        schema["additionalProperties"] = False
    return schema


def mistakes(document: Document) -> list[str]:
    """What KubeRay's definitions say is wrong with one of its objects."""
    errors = jsonschema.Draft202012Validator(_schema(document["kind"])).iter_errors(document)
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in errors]
