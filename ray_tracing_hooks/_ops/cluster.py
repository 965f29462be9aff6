"""Connects to a cluster as a driver that makes no spans, and runs functions on its nodes.

Each node gets an actor that takes no processor and is placed there by node affinity, so it runs on busy nodes too.
Nothing waits beyond its timeout: that a node does not answer is a result too.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from ray_tracing_hooks._ops import probe
from ray_tracing_hooks._ops.head import CLIENT, COMMAND_NAMESPACE, as_command
from ray_tracing_hooks._safety.guard import TracingError, describe

_STAND_IN = '''
import importlib.util, sys

class Finder:
    """Makes a worker skip the hook of its cluster, which would end it."""

    def find_spec(self, name, path=None, target=None):
        if name != "ray.util.tracing.tracing_helper":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            module._enable_tracing = lambda: None
            module._import_from_string = lambda name: lambda: None

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
'''
"""A ``sitecustomize`` for workers on nodes where the hook does not work."""


class ConnectError(TracingError):
    """Ray refuses the connection."""


class Node(NamedTuple):
    """A living node of the cluster, with Ray's id of it in hexadecimal.

    ``name`` is what findings call it: the name that it was given, or that of its host, with the beginning of its id
    where several have the same.
    """

    id: str
    name: str
    ip: str
    is_head: bool


class Answer(NamedTuple):
    """What came from a node: the result of the function, or why there is none.

    ``failure`` is None, or one of ``silent`` (no answer in time), ``died`` (the process ended), ``gone`` (the node left
    the cluster), ``failed`` (the function, or the start of its process, failed). ``text`` is then the error.
    """

    value: Any = None
    failure: str | None = None
    text: str = ""

    @property
    def problem(self) -> str:
        """The failure for people; empty if there is none."""
        if self.failure == "died":
            return "workers end when they start; `ray-tracing-hooks doctor` finds out why"
        return self.text if self.failure is not None else ""


class Visit:
    """Actors on nodes, until :meth:`end`. A call waits until its actor has started."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        import ray  # noqa: PLC0415  only where a cluster is asked

        self._ray = ray
        self._actors: dict[Node, Any] = {}
        self.go_to(nodes)

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(self._actors)

    def go_to(self, nodes: Sequence[Node]) -> None:
        """Visit these nodes, and no others; those that are visited already keep their actors."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415  as above

        before, self._actors = self._actors, {}
        for node in nodes:
            if node in before:
                self._actors[node] = before.pop(node)
                continue
            options = self._ray.remote(probe.Visitor).options(
                num_cpus=0,
                max_restarts=0,
                max_task_retries=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
            )
            self._actors[node] = options.remote()
        self._kill(before.values())

    def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        timeout: float,
        on_answer: Callable[[Node], None] = lambda _node: None,
        nodes: Sequence[Node] | None = None,
    ) -> dict[Node, Answer]:
        """What the function returns on each of the nodes within ``timeout`` seconds.

        ``on_answer`` is called with each node as soon as it has answered.
        """
        deadline = time.monotonic() + timeout
        asked = {self.ask(node, function, *arguments): node for node in (self.nodes if nodes is None else nodes)}
        answers: dict[Node, Answer] = {}
        left = list(asked)
        while left and (seconds := deadline - time.monotonic()) > 0:
            done, left = self._ray.wait(left, num_returns=1, timeout=seconds)
            for reference in done:
                answers[asked[reference]] = self._answer(reference)
                on_answer(asked[reference])
        for reference in left:
            answers[asked[reference]] = Answer(failure="silent", text=f"no answer within {timeout:g} s")
        return answers

    def ask(self, node: Node, function: Callable[..., Any], *arguments: Any) -> Any:
        """A reference to what the function returns on a node, for :meth:`answer`."""
        return self._actors[node].run.remote(function, *arguments)

    def answer(self, reference: Any, timeout: float) -> Answer:
        """What the function has returned, within ``timeout`` seconds."""
        done, _ = self._ray.wait([reference], timeout=timeout)
        return self._answer(reference) if done else Answer(failure="silent", text=f"no answer within {timeout:g} s")

    def end(self) -> None:
        self._kill(self._actors.values())

    def _kill(self, actors: Iterable[Any]) -> None:
        # They end with the connection. Without one, Ray would start a cluster here, to kill them there.
        for actor in actors if self._ray.is_initialized() else ():
            self._ray.kill(actor)

    def _answer(self, reference: Any) -> Answer:
        errors: Any = self._ray.exceptions
        try:
            return Answer(self._ray.get(reference, timeout=0))
        except errors.ActorUnschedulableError as error:
            return Answer(failure="gone", text=describe(error))
        except errors.ActorDiedError as error:
            is_gone = "node" in str(error) and "died" in str(error) and "worker process" not in str(error)
            return Answer(failure="gone" if is_gone else "died", text=describe(error))
        except Exception as error:  # noqa: BLE001  whatever Ray raises, other nodes may answer
            return Answer(failure="failed", text=describe(getattr(error, "cause", None) or error))


def nodes() -> list[Node]:
    """The living nodes of the connected cluster, the head first."""
    import ray  # noqa: PLC0415  only where a cluster is asked

    found = [each for each in ray.nodes() if each["Alive"]]
    names = Counter(map(_called, found))
    made = [
        Node(
            each["NodeID"],
            _called(each) if names[_called(each)] == 1 else f"{_called(each)}/{each['NodeID'][:8]}",
            str(each["NodeManagerAddress"]),
            "node:__internal_head__" in each.get("Resources", {}),
        )
        for each in found
    ]
    return sorted(made, key=lambda node: (not node.is_head, node.name))


def _called(node: Mapping[str, Any]) -> str:
    """The name of a node. Ray's default is its address; the name of its host says more."""
    address, name = str(node["NodeManagerAddress"]), str(node.get("NodeName") or "")
    return name if name not in {"", address} else str(node["NodeManagerHostname"]) or address


@contextmanager
def connected(address: str, *, skips_hook: bool = False) -> Iterator[None]:
    """This process is a driver of the cluster at ``address`` within this block.

    With ``skips_hook``, workers that are started for it do not call the hook of the cluster. Raises ConnectError.
    """
    import ray  # noqa: PLC0415  only where a cluster is asked

    with ExitStack() as stack:
        stack.enter_context(as_command())
        # Otherwise functions of the module would be sent by name, and nodes would import it.
        ray.cloudpickle.register_pickle_by_value(probe)
        stack.callback(ray.cloudpickle.unregister_pickle_by_value, probe)
        options: dict[str, Any] = {"namespace": COMMAND_NAMESPACE}
        if not address.startswith(CLIENT):
            options |= {"log_to_driver": False, "logging_level": logging.CRITICAL}
        if skips_hook:
            folder = os.path.join(stack.enter_context(tempfile.TemporaryDirectory()), "sitecustomize")
            os.mkdir(folder)
            with open(os.path.join(folder, "__init__.py"), "w", encoding="utf-8") as file:
                file.write(_STAND_IN)
            options["runtime_env"] = {"py_modules": [folder]}
        try:
            ray.init(address, **options)
        except Exception as error:
            raise ConnectError(" ".join(str(error).split()) or describe(error)) from error
        stack.callback(ray.shutdown)
        yield


@contextmanager
def visiting(where: Sequence[Node]) -> Iterator[Visit]:
    visit = Visit(where)
    try:
        yield visit
    finally:
        visit.end()
