"""What commands share that ask a running cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from ray_tracing_hooks._cli.screen import SafeError
from ray_tracing_hooks._ops import cluster
from ray_tracing_hooks._ops.cluster import ConnectError, Visit
from ray_tracing_hooks._ops.head import (
    CLIENT,
    TIMEOUT,
    AddressError,
    NoAnswerError,
    NoClusterError,
    NoRayError,
    ask,
    find,
)
from ray_tracing_hooks._safety.guard import safe

NO_RAY = "Ray is not installed here"


def cluster_address(given: str | None, *, clients: bool = True) -> str:
    """The address of the cluster; an invalid one ends the command with exit code 2.

    Raises NoRayError, and NoClusterError if none is given and none runs here.
    """
    try:
        return find(given, clients=clients)
    except AddressError as error:
        raise click.BadParameter(safe(str(error)), param_hint="--address") from None


def answering_cluster(given: str | None, instead: str = "") -> str:
    """The address of a cluster that answers; without one the command ends with exit code 1.

    ``instead`` is what else the user can give.
    """
    try:
        found = cluster_address(given)
        if not found.startswith(CLIENT):
            ask(found, TIMEOUT)
    except NoRayError as error:
        raise SafeError(f"{NO_RAY}: {error}") from None
    except NoClusterError as error:
        raise SafeError(f"{error}: give the address of one with --address, or in RAY_ADDRESS{instead}") from None
    except NoAnswerError as error:
        raise SafeError(f"{error}; `ray-tracing-hooks doctor` finds out more") from None
    return found


@contextmanager
def visiting(address: str) -> Iterator[Visit]:
    """A visit of all nodes of the cluster at this address within this block; if Ray refuses the connection, the command
    ends with exit code 1.
    """
    try:
        with cluster.connected(address), cluster.visiting(cluster.nodes()) as visit:
            yield visit
    except ConnectError as error:
        raise SafeError(f"the connection to {address} fails: {error}") from None
