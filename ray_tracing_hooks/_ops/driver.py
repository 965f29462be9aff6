"""How a command connects to a cluster: it makes no spans, shows no values, and reports a raylet that is silent.

All of this wraps functions of Ray in this process only, while it connects:

* ``tracing_helper._enable_tracing``, which switches on Ray's own tracing, and the hook, which is not called while
  ``ray.__traced__`` is set (Ray 2.60, the end of ``connect()`` in ``_private/worker.py``). The hook may not even be
  importable here. Also ``listen_error_messages`` of the same file, which would print what is reported as a finding.
* ``get_entrypoint_name`` (Ray 2.40 to 2.60, ``_private/utils.py``): Ray stores the command line of each driver in its
  table of jobs, where whoever may use the cluster sees it, and values of settings may be secrets.
* ``get_node_to_connect_for_driver`` (Ray 2.40 to 2.60, ``_private/services.py``), which chooses the raylet. In 2.60 it
  returns a ``GcsNodeInfo``, in older versions a dictionary without the address. A driver asks the raylet of its node
  for the settings of the cluster. Where that does not answer, since it is suspended or overloaded, Ray's compiled code
  ends the process: neither Python nor the user learns why.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ray_tracing_hooks._safety.errors import TracingError
from ray_tracing_hooks._safety.patching import ABSENT, Patches

NAMESPACE = "_ray_internal_ray_tracing_hooks"
"""That of such drivers. The beginning marks drivers of Ray's own: one that serves a Ray Client makes no root span for
it.
"""


@contextmanager
def untraced() -> Iterator[None]:
    """Connections of this process within this block make no spans and print nothing."""
    import ray  # noqa: PLC0415  only where a cluster is asked
    from ray._private import worker  # noqa: PLC0415
    from ray.util.tracing import tracing_helper  # noqa: PLC0415

    patches = Patches()
    patches.set(ray, "__traced__", True, back=getattr(ray, "__traced__", ABSENT))
    patches.wrap(tracing_helper, "_enable_tracing", _nothing)
    patches.wrap(worker, "listen_error_messages", _nothing)
    try:
        yield
    finally:
        patches.undo()


def _nothing(_original: Callable[..., Any]) -> Callable[..., None]:
    def nothing(*_arguments: Any, **_options: Any) -> None:
        """Takes the place of a function of Ray."""

    return nothing


_NAME = re.compile(r"(-{0,2}[A-Za-z][\w-]*)(=.*)?", re.ASCII | re.DOTALL)
"""An option, or the name of a setting, perhaps with its value."""

_LEFT_OUT = "..."


@contextmanager
def entrypoint_without_values() -> Iterator[None]:
    """In the table of jobs, drivers that connect within this block have the command line without values."""
    from ray._private import utils  # noqa: PLC0415  only where a cluster is asked

    patches = Patches()
    patches.wrap(utils, "get_entrypoint_name", _command)
    try:
        yield
    finally:
        patches.undo()


def without_values(words: Sequence[str]) -> str:
    """The command line of these words; of all but the first, the command, names are left."""
    return " ".join(("ray-tracing-hooks", *words[:1], *map(_name, words[1:])))


def _command(_original: Callable[..., Any]) -> Callable[..., str]:
    def command(*_arguments: Any, **_options: Any) -> str:
        """Takes the place of a function of Ray."""
        return without_values(sys.argv[1:])

    return command


def _name(word: str) -> str:
    found = _NAME.fullmatch(word)
    if found is not None and found[2]:
        return f"{found[1]}={_LEFT_OUT}"
    return word if found is not None and word.startswith("-") else _LEFT_OUT


_TIMEOUT = 25.0
"""Seconds that a raylet may take to answer. Ray (2.52 and 2.60) ends the process after 28: a raylet that is only slow
must not be refused before."""


class SilentRayletError(TracingError):
    """The raylet that a driver would connect to does not answer."""


@contextmanager
def refusing_silent_raylets() -> Iterator[None]:
    """Connections of this process within this block raise SilentRayletError where Ray would end the process."""
    from ray._private import services  # noqa: PLC0415  only where a cluster is asked

    patches = Patches()
    patches.wrap(services, "get_node_to_connect_for_driver", _asked_first)
    try:
        yield
    finally:
        patches.undo()


def _asked_first(choose: Callable[..., Any]) -> Callable[..., Any]:
    def choose_one_that_answers(*arguments: Any, **options: Any) -> Any:
        """Takes the place of a function of Ray."""
        chosen = choose(*arguments, **options)
        address = _address(chosen, arguments)
        if address and not _answers(address):
            raise SilentRayletError(
                f"the raylet of this node, at {address}, did not answer within {_TIMEOUT:g} s: it may be suspended, "
                "overloaded or gone"
            )
        return chosen

    return choose_one_that_answers


def _address(node: Any, arguments: Sequence[Any]) -> str:
    """Where a raylet listens; empty if this Ray describes nodes in another way."""
    try:
        if isinstance(node, dict):
            host, port = _found(arguments[0], node["node_id"])
        else:
            host, port = node.node_manager_address, node.node_manager_port
    except (ImportError, AttributeError, LookupError, TypeError, ValueError):
        return ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _found(head: str, node_id: str) -> tuple[str, int]:
    """The address of a node, by the table of the head at ``host:port``."""
    from ray._private import services, state  # noqa: PLC0415  as above

    nodes: Any = state.GlobalState()
    nodes._initialize_global_state(services._get_gcs_client_options(head))  # noqa: SLF001  they have no public names
    (node,) = [each for each in nodes.node_table() if each["NodeID"] == node_id]
    return node["NodeManagerAddress"], node["NodeManagerPort"]


def _answers(address: str) -> bool:
    """Whether a server speaks HTTP/2 there; of a process that is suspended, the kernel still accepts connections."""
    import grpc  # noqa: PLC0415  only where a cluster is asked
    from ray._private import gcs_utils  # noqa: PLC0415  as above

    channel = gcs_utils.create_gcs_channel(address)
    try:
        grpc.channel_ready_future(channel).result(_TIMEOUT)
    except grpc.FutureTimeoutError:
        return False
    finally:
        channel.close()
    return True
