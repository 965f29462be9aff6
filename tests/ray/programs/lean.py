"""Clusters of Ray that start with fewer processes: no autoscaler, log monitor or server for clients, and no dashboard
nor its agent on each node. The agent for runtime environments starts with the first one that is wanted.

Each of these takes half a second of processor time or more, and Ray waits for the dashboard even where it is off. No
test looks at them, but for those that ask for one. Run as a program, this is the command ``ray``, with a log monitor
where ``RTH_LOG_MONITOR`` is set.
"""

import contextlib
import importlib.util
import os
import subprocess
import sys

import ray
from ray._private import services
from ray._private.node import Node

try:
    from ray._raylet import persist_port
except ImportError:  # a Ray whose raylet waits for no ports
    persist_port = None

# By its place, since not every program that uses this has it on its path.
_HELPERS = os.path.join(os.path.dirname(__file__), "..", "..", "helpers")
_spec = importlib.util.spec_from_file_location("ports", os.path.join(_HELPERS, "ports.py"))
ports = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(ports)

BEGINS_LATE = tuple(map(int, ray.__version__.split(".")[:2])) >= (2, 60)
"""Whether the agent for runtime environments may begin with its first request."""

PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")


@contextlib.contextmanager
def processes(logs=False, dashboard=False, clients=False):
    """Nodes that start within this block have a log monitor, a dashboard, a server for clients if these say so."""
    replaced = {
        (Node, "__init__"): _with_ports(Node.__init__),
        (Node, "start_raylet"): _with_told_port(Node.start_raylet),
        (Node, "start_monitor"): _nothing,
    }
    for name, is_wanted in (
        ("start_log_monitor", logs),
        ("start_api_server", dashboard),
        ("start_ray_client_server", clients),
    ):
        if not is_wanted:
            replaced[Node, name] = _nothing
    replaced[services, "start_ray_process"] = _with_other_agents(services.start_ray_process, dashboard)
    before = {(owner, name): getattr(owner, name) for owner, name in replaced}
    try:
        for (owner, name), replacement in replaced.items():
            setattr(owner, name, replacement)
        yield
    finally:
        for (owner, name), original in before.items():
            setattr(owner, name, original)


def _with_other_agents(start, dashboard):
    """A raylet ends where one of its agents does, so programs that do nothing take the place of these."""
    of_dashboard, of_environments = "--dashboard_agent_command=", "--runtime_env_agent_command="
    here = os.path.dirname(__file__)
    idle = subprocess.list2cmdline([sys.executable, "-IS", os.path.join(here, "idle_agent.py")])
    agent = os.path.join(os.path.dirname(services.__file__), "runtime_env", "agent", "main.py")
    late = os.path.join(here, "late_agent.py")

    def replaced(part):
        if part.startswith(of_dashboard) and not dashboard:
            return of_dashboard + idle
        # With Ray 2.40, an agent that begins late never answers.
        if part.startswith(of_environments) and BEGINS_LATE:
            return part.replace(subprocess.list2cmdline([agent]), subprocess.list2cmdline([late, agent]))
        return part

    def start_with_other_agents(command, *arguments, **options):
        return start([replaced(part) for part in command], *arguments, **options)

    return start_with_other_agents


def _with_ports(begin):
    """The agents of a node listen at ports that are known before: where they choose theirs, the raylet ends if they
    have not told it within 15 seconds, and Ray says after 30 that the node timed out.
    """

    def begin_with_ports(node, ray_params, *arguments, **options):
        for name in PORTS:
            if not getattr(ray_params, name):
                setattr(ray_params, name, ports.free_port())
        return begin(node, ray_params, *arguments, **options)

    return begin_with_ports


def _with_told_port(start_raylet):
    """Two of these ports are taken from a file, which the agents write again."""

    def start_raylet_with_told_port(node, *arguments, **options):
        if persist_port is not None:
            for name in ("dashboard_agent_listen_port", "runtime_env_agent_port"):
                persist_port(node._session_dir, node._node_id, name, getattr(node._ray_params, name))
        return start_raylet(node, *arguments, **options)

    return start_raylet_with_told_port


def _nothing(*_arguments, **_options):
    return None


def start(*arguments, **options):
    """``ray.init`` for a program that starts a cluster of its own."""
    with processes(logs=options.get("log_to_driver", True)):
        return ray.init(*arguments, **{"include_dashboard": False, **options})


if __name__ == "__main__":
    from ray.scripts.scripts import main

    sys.argv[0] = os.path.join(os.path.dirname(sys.executable), "ray")
    with processes(
        logs="RTH_LOG_MONITOR" in os.environ,
        dashboard="--include-dashboard=true" in sys.argv,
        clients=any(argument.startswith("--ray-client-server-port=") for argument in sys.argv),
    ):
        main()
