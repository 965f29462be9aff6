"""The names by which SkyWalking knows a service and what it calls, the same in headers and in segments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.skywalking.headers import LONGEST_ADDRESS, LONGEST_NAME, cut

_SESSION = "session_"
"""How the names of Ray's sessions begin."""

_HOSTS = (("server.address", "server.port"), ("net.peer.name", "net.peer.port"), ("peer.service", ""))
_URLS = ("url.full", "http.url")


REGISTERED = "registered"
"""The key of the ids that a back end of 6.x has given out, in the state that the exporter stores in the spool."""


class Identity(NamedTuple):
    """What SkyWalking calls a process: many processes of one cluster are one instance of one service."""

    service: str
    instance: str


def identity(
    resource: Mapping[str, Any],
    service: str | None = None,
    instance: str | None = None,
    namespace: str | None = None,
    of_deployment: str | None = None,
) -> Identity:
    """The identity of a process with this resource, where the settings do not say otherwise.

    ``of_deployment`` is the name of the service for replicas of a deployment of Ray Serve, with placeholders.

    The instance is the session of the Ray cluster: then the parent of a span in another process is of the same
    instance, and a reference to it is right. The workers of a cluster come and go; SkyWalking would keep each.
    """
    name = service or str(resource.get("service.name") or "ray")
    deployment = resource.get(names.RAY_SERVE_DEPLOYMENT)
    if of_deployment and deployment:
        told = {
            "service": name,
            "application": str(resource.get(names.RAY_SERVE_APPLICATION) or ""),
            "deployment": str(deployment),
        }
        name = re.sub(r"\{(\w+)\}", lambda found: told.get(found[1], ""), of_deployment)
    if namespace:
        name = f"{name}|{namespace}"
    if not instance:
        session = str(resource.get(names.RESOURCE_SESSION_NAME) or resource.get("host.name") or "ray")
        instance = session.removeprefix(_SESSION)
    return Identity(cut(name, LONGEST_NAME), cut(instance, LONGEST_NAME))


def address(attributes: Mapping[str, Any], called: str, service: str) -> str:
    """The address that a call goes to: ``host:port`` if its attributes tell it, else a name for what is called.

    SkyWalking draws an arrow if this is the same text in the span of the call and in the header that it sends.
    """
    told = attributes.get(names.SKYWALKING_PEER)
    if told:
        return cut(str(told), LONGEST_ADDRESS)
    for host, port in _HOSTS:
        if name := attributes.get(host):
            number = attributes.get(port) if port else None
            return cut(f"{name}:{number}" if number else str(name), LONGEST_ADDRESS)
    for key in _URLS:
        if found := _host_of(str(attributes.get(key) or "")):
            return cut(found, LONGEST_ADDRESS)
    return cut(f"ray:{service}/{called}", LONGEST_ADDRESS)


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:
        return ""


def registered_in(state: Mapping[str, Any]) -> dict[Identity, tuple[int, int]]:
    """The ids of services and instances in that state; nothing of a malformed one."""
    try:
        return {
            Identity(str(service), str(instance)): (int(service_id), int(instance_id))
            for service, instance, service_id, instance_id in state.get(REGISTERED, ())
        }
    except (TypeError, ValueError):
        return {}
