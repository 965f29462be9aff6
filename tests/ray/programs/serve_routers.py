"""A router of requests, as users write them. Serve pickles it with its module, so that is a small one."""

import socket

from opentelemetry import trace
from ray.serve._private.request_router.request_router import FIFOMixin, RequestRouter


class Telling(FIFOMixin, RequestRouter):
    """Tells a listener, on each choice, for which request that is."""

    def initialize_state(self, port):
        self.port = port

    async def choose_replicas(self, candidate_replicas, pending_request=None):
        request = pending_request.args[0] if pending_request.args else ""
        with trace.get_tracer("serve_routers").start_as_current_span(f"chooses for {request}"):
            with socket.create_connection(("127.0.0.1", self.port)) as listener:
                listener.sendall(str(request).encode())
            return [candidate_replicas]
