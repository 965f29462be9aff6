"""Requests to Ray Serve of which one fails in a deployment that another one calls. Returns the statuses."""

import harness
from ports import free_port
from ray import serve
from serve_app import Client

OPTIONS = {"ray_actor_options": {"num_cpus": 0}, "graceful_shutdown_wait_loop_s": 0.1}


@serve.deployment(**OPTIONS)
class Back:
    def answer(self, what):
        if what == "fail":
            raise ValueError(what)
        return what


@serve.deployment(**OPTIONS)
class Front:
    def __init__(self, back):
        self.back = back

    async def __call__(self, request):
        return await self.back.answer.remote(request.query_params["what"])


def main():
    port = free_port()
    serve.start(http_options={"port": port})
    serve.run(Front.bind(Back.bind()), name="keeping", route_prefix="/keeping")
    client = Client(port)
    statuses = [client.get(f"/keeping?what={what}", "")[0] for what in ("good", "fail", "good")]
    serve.shutdown()
    return statuses


if __name__ == "__main__":
    harness.run(main)
