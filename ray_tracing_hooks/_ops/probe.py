"""What runs on a node first. It is sent by value, so it works where this package is missing or of another version.

So this module imports only the standard library, and its functions import everything else when they are called, in
``try`` blocks. They return plain data, which :mod:`~ray_tracing_hooks._ops.facts` reads.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

_DISTRIBUTIONS = ("opentelemetry", "ray-tracing-hooks", "grpcio", "protobuf")
"""How the names of installed packages begin whose versions are of interest."""


class Visitor:
    """An actor on a node, in a process of its own, which runs what it is sent."""

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of the function, sent by value or of the node's own package."""
        return function(*arguments)


def clock() -> int:
    """The time on this node, in nanoseconds since the epoch."""
    return time.time_ns()


def look(request: Mapping[str, Any]) -> dict[str, Any]:
    """What is found here.

    Of the ``request``, ``is_worker`` says that this process is a worker of the cluster, ``hook`` is its hook,
    ``calls_hook`` says that it is to be called here, since Ray has not called it, and ``version`` is the version of the
    package that asks. The rest is passed on to the examination by the package of this node.
    """
    found: dict[str, Any] = {
        "python": sys.version.split()[0],
        "executable": sys.executable,
        **_package(),
        "distributions": _distributions(),
        **(_place() if request["is_worker"] else {}),
    }
    found["hook_error"] = _hook_error(request.get("hook"), calls=bool(request.get("calls_hook")))
    tracing = _tracing()
    found |= {"called": tracing["called"], "traced": "exporters" in tracing, "reported": tracing.get("reported", [])}
    if found["package"] == request["version"]:
        try:
            from ray_tracing_hooks._ops.examination import examine  # noqa: PLC0415  see above

            found["examined"] = examine({**request, **found, "tracing": tracing})
        except Exception as error:  # noqa: BLE001  it is reported
            found["examination_error"] = _described(error)
    return found


def place() -> dict[str, Any]:
    """Where this process runs, and the spool that it writes to, if it is traced."""
    return {**_place(), "spool": _tracing().get("spool")}


def spools(request: Mapping[str, Any]) -> dict[str, Any]:
    """The spools of this node and their figures, by the package of this node."""
    found: dict[str, Any] = {**_place(), "time_ns": time.time_ns()}
    try:
        from ray_tracing_hooks._ops.spools import spools_of  # noqa: PLC0415  see above

        tracing = _tracing()
        found["spools"] = spools_of(found["session_dir"], found["node_id"], tracing.get("spool"), request)
        if request.get("control"):
            from ray_tracing_hooks._ops.change_on_node import in_force  # noqa: PLC0415  see above

            found["control"] = in_force()
    except Exception as error:  # noqa: BLE001  it is reported
        found["error"] = _described(error)
    return found


def _place() -> dict[str, Any]:
    """Where this process runs, as Ray says. Nothing where it is not connected."""
    worker = getattr(sys.modules.get("ray._private.worker"), "global_worker", None)
    if worker is None or not getattr(worker, "connected", False):
        return {}
    ray: Any = sys.modules["ray"]
    return {
        "ray": ray.__version__,
        "session_dir": worker.node.get_session_dir_path(),
        "node_id": worker.core_worker.get_current_node_id().hex(),
    }


def _package() -> dict[str, str]:
    try:
        from ray_tracing_hooks import __version__  # noqa: PLC0415  see above
    except Exception as error:  # noqa: BLE001  it is reported
        return {"package": "", "package_error": _described(error)}
    return {"package": __version__}


def _distributions() -> dict[str, str]:
    found = {}
    for each in importlib.metadata.distributions():
        name = str(each.metadata["Name"] or "").lower().replace("_", "-")
        # The first one on the path is the one that is imported.
        if name.startswith(_DISTRIBUTIONS) and name not in found:
            found[name] = each.version
    return found


def _hook_error(hook: str | None, *, calls: bool) -> str:
    """Why the hook does not work here; empty if it does, or has been called already."""
    if not hook or not calls:
        return ""
    try:
        _imported(hook)()
    except BaseException as error:  # noqa: BLE001  whatever it is, it ends the workers of this node
        return _described(error)
    return ""


def import_error(hook: str) -> str:
    """Why the hook cannot be imported here; empty if it can."""
    try:
        _imported(hook)
    except BaseException as error:  # noqa: BLE001  as above
        return _described(error)
    return ""


def _imported(hook: str) -> Callable[[], Any]:
    """The function that a hook's name, ``module:attribute``, stands for."""
    module, _, name = hook.partition(":")
    function: Any = importlib.import_module(module)
    for part in name.split("."):
        function = getattr(function, part)
    return function  # type: ignore[no-any-return]


def _tracing() -> dict[str, Any]:
    """What this package does in this process, if a hook of it has been called."""
    startup: Any = sys.modules.get("ray_tracing_hooks._startup")
    if startup is None or not startup.is_called():
        return {"called": False}
    found: dict[str, Any] = {"called": True}
    try:
        guard: Any = sys.modules["ray_tracing_hooks._safety.guard"]
        found["reported"] = sorted(guard.reported())
        connection = startup.connection()
        if connection is not None:
            delivery = connection.delivery
            found |= {"exporters": list(delivery.plan.exporters), "spool": delivery.spool}
            found["directory"] = connection.process.start_directory()
    except Exception as error:  # noqa: BLE001  it is another version of the package
        found["error"] = _described(error)
    return found


def _described(error: BaseException) -> str:
    """Type and text of an error, and where it was raised."""
    lines = traceback.format_exception_only(type(error), error)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return " ".join(" ".join(lines).split())[:500] + where
