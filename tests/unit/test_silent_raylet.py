"""A driver of a command is not connected to a raylet that does not answer."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from ray._private import services

from ray_tracing_hooks._ops import head
from ray_tracing_hooks._ops.head import SilentRayletError, as_command

NAME = "get_node_to_connect_for_driver"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "_RAYLET_TIMEOUT", 1.0)


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Sets what Ray chooses, without a head to ask."""

    def choose(node: Any) -> None:
        monkeypatch.setattr(services, NAME, lambda *_arguments, **_options: node)

    return choose


@pytest.fixture
def answering_port() -> Iterator[int]:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    server.stop(None).wait()


def choice() -> Any:
    return getattr(services, NAME)(None)


def test_a_raylet_that_only_accepts_connections_is_refused(chosen: Callable[[Any], None]) -> None:
    """As the kernel does for a process that is suspended."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        chosen(SimpleNamespace(node_manager_address="127.0.0.1", node_manager_port=port))
        with as_command(), pytest.raises(SilentRayletError, match=f"at 127.0.0.1:{port}, did not answer"):
            choice()


def test_one_that_answers_is_connected_to(chosen: Callable[[Any], None], answering_port: int) -> None:
    node = SimpleNamespace(node_manager_address="127.0.0.1", node_manager_port=answering_port)
    chosen(node)
    with as_command():
        assert choice() is node


@pytest.mark.parametrize("node", [SimpleNamespace(), {}, {"node_id": "ab"}, None], ids=repr)
def test_what_another_ray_chooses_is_left_to_it(chosen: Callable[[Any], None], node: Any) -> None:
    """Where the address cannot be known, Ray connects as without this."""
    chosen(node)
    with as_command():
        assert choice() is node


def test_ray_is_wrapped_once_and_unwrapped(chosen: Callable[[Any], None]) -> None:
    chosen({})
    original = getattr(services, NAME)
    with as_command():
        wrapped = getattr(services, NAME)
        assert wrapped is not original
        with as_command():
            assert getattr(services, NAME) is wrapped
        assert getattr(services, NAME) is wrapped
    assert getattr(services, NAME) is original


def test_a_ray_without_this_function_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(services, NAME)
    with as_command():
        assert not hasattr(services, NAME)
