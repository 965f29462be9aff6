"""A gRPC server for tests with one method, which answers as a function says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc


@contextmanager
def grpc_server(
    method: str,
    answer: Callable[[bytes, grpc.ServicerContext], bytes],
    *,
    credentials: grpc.ServerCredentials | None = None,
    port: int = 0,
    compression: grpc.Compression | None = None,
) -> Iterator[int]:
    """Serves a method, such as ``package.Service/Export``, on a port of this machine, and gives the port."""
    service, _, name = method.rpartition("/")
    handlers = {name: grpc.unary_unary_rpc_method_handler(answer)}
    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(
            threads,
            handlers=[grpc.method_handlers_generic_handler(service.lstrip("/"), handlers)],
            options=[("grpc.so_reuseport", 0), ("grpc.max_send_message_length", -1)],
            compression=compression,
        )
        address = f"127.0.0.1:{port}"
        bound = (
            server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials)
        )
        server.start()
        try:
            yield bound
        finally:
            server.stop(None).wait()
