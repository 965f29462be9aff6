"""The real Fluent Bit, with the configuration that ``deploy/kubernetes`` has for it.

It is ``fluent-bit`` on the path, or the program that ``FLUENT_BIT`` names. No package index has it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from manifests import MANIFESTS
from peers import until_open
from ports import free_port

PROGRAM = os.environ.get("FLUENT_BIT") or shutil.which("fluent-bit") or ""
needs_fluent_bit = pytest.mark.skipif(not PROGRAM, reason="needs fluent-bit, on the path or named by FLUENT_BIT")

CONFIGURATION = MANIFESTS / "components" / "fluent-bit" / "fluent-bit.yaml"

POD = {
    "K8S_POD_NAME": "raycluster-head-x7x9k",
    "K8S_POD_UID": "0ee4e4f8-8f0b-4a5c-9a37-0b4a30a7f5b1",
    "K8S_NAMESPACE_NAME": "ml",
    "K8S_NODE_NAME": "node-7",
    "K8S_RAY_CLUSTER": "raycluster",
    "K8S_RAY_NODE_TYPE": "head",
    "K8S_RAY_GROUP": "headgroup",
}
"""What the downward API says of a pod."""

SERVICE = "raycluster"
"""The name that the settings of its cluster have."""

RESOURCE = {
    "service.name": SERVICE,
    "k8s.pod.name": POD["K8S_POD_NAME"],
    "k8s.pod.uid": POD["K8S_POD_UID"],
    "k8s.namespace.name": POD["K8S_NAMESPACE_NAME"],
    "k8s.node.name": POD["K8S_NODE_NAME"],
    "ray.io/cluster": POD["K8S_RAY_CLUSTER"],
    "ray.io/node-type": POD["K8S_RAY_NODE_TYPE"],
    "ray.io/group": POD["K8S_RAY_GROUP"],
}
"""What the sidecar makes of it."""


def sidecar(ray: Path) -> dict[str, str]:
    """The variables of the sidecar in a pod whose ``/tmp/ray`` is this folder."""
    pod = yaml.safe_load((MANIFESTS / "components" / "fluent-bit-sidecar" / "pod.yaml").read_text())
    (container,) = pod["template"]["spec"]["initContainers"]
    return {"OTEL_SERVICE_NAME": SERVICE, **_variables(container, "/tmp/ray", ray)}


def daemonset(pods: Path) -> dict[str, str]:
    """The variables of the DaemonSet on a node whose ``/var/lib/kubelet/pods`` is this folder."""
    daemons = yaml.safe_load((MANIFESTS / "components" / "fluent-bit-daemonset" / "daemonset.yaml").read_text())
    (container,) = daemons["spec"]["template"]["spec"]["containers"]
    return _variables(container, "/var/lib/kubelet/pods", pods)


def _variables(container: dict[str, Any], there: str, here: Path) -> dict[str, str]:
    found = {each["name"]: each.get("value", POD.get(each["name"], "")) for each in container["env"]}
    assert found["RAY_SESSIONS"].startswith(f"{there}/")
    return {**found, "RAY_SESSIONS": str(here) + found["RAY_SESSIONS"].removeprefix(there)}


class FluentBit:
    """A container with these variables; it sends to a port of this machine.

    Attributes:
        port: Where it takes OTLP.
        log: What it has printed.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str], collector_port: int) -> None:
        self.port = free_port()
        self.log = folder / "fluent-bit.log"
        self._state = folder / "fluent-bit"
        self._state.mkdir()
        self._configuration = folder / "fluent-bit.yaml"
        text = CONFIGURATION.read_text()
        for there, here in (("/var/fluent-bit", str(self._state)), ("port: 4318", f"port: {self.port}")):
            assert there in text
            text = text.replace(there, here)
        self._configuration.write_text(text)
        self._environment = {**os.environ, **variables, **_endpoint(collector_port), "TZ": "UTC"}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "--config", str(self._configuration)], env=self._environment, stdout=log, stderr=log
            )
        until_open(self.port, self.process)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)
            self.process = None

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None


def dry_run(configuration: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    """Let the program check a configuration, with texts replaced."""
    text = CONFIGURATION.read_text()
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    yaml.safe_load(text)
    configuration.write_text(text)
    environment = {**os.environ, **sidecar(configuration.parent), **_endpoint(4318)}
    return subprocess.run(
        [PROGRAM, "--dry-run", "--config", str(configuration)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _endpoint(port: int) -> dict[str, str]:
    return {"OTLP_HOST": "127.0.0.1", "OTLP_PORT": str(port), "OTLP_TLS": "off"}
