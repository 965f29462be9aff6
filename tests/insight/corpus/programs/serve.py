"""Applications of Ray Serve, called by handles and over HTTP.

No span shows that a driver waits for a request over HTTP, so what these cost the run is not measured.
"""

import asyncio
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import urlopen

from corpus import burn, healthy, planted, spend
from corpus.running import main

WITH = {"library": "extras", "parts": "+get,wait", "cluster": {"num_cpus": 6}}
NONE = {"num_cpus": 0}


def deployed(run, app):
    from ray import serve

    begun = time.perf_counter()
    serve.start(proxy_location="Disabled")
    handle = serve.run(app, route_prefix=None)
    run.start = time.perf_counter() - begun
    return handle


def over_http(run, app):
    from ray import serve

    begun = time.perf_counter()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    serve.start(http_options={"port": port})
    serve.run(app, route_prefix="/")
    run.start = time.perf_counter() - begun
    return f"http://127.0.0.1:{port}/"


def deployment(**options):
    from ray import serve

    return serve.deployment(ray_actor_options=NONE, **options)


def at_once(handle, count):
    for response in [handle.remote(value) for value in range(count)]:
        response.result()


def clients(address, at_once, count):
    with ThreadPoolExecutor(at_once) as threads:
        list(threads.map(lambda _: fetch(address), range(count)))


def fetch(address):
    try:
        with urlopen(address) as answer:
            return answer.read()
    except HTTPError as error:
        return error.code


@planted("waiting-for-replicas", says=("Scorer",), **WITH)
def one_at_a_time(run):
    """Forty calls by handle at once to a deployment whose one replica takes one at a time."""

    @deployment(max_ongoing_requests=40 if run.mended else 1)
    class Scorer:
        def __call__(self, value):
            return spend(0.12)

    handle = deployed(run, Scorer.bind())
    with run.costing():
        at_once(handle, run.times(30))


@planted("waiting-for-replicas", says=("Ranker",), **WITH)
def slow_dependency(run):
    """An ingress over HTTP has room for all, and the deployment that it calls for two."""

    @deployment(max_ongoing_requests=16 if run.mended else 2)
    class Ranker:
        async def rank(self, value):
            await asyncio.sleep(0.2)
            return value

    @deployment(max_ongoing_requests=50)
    class Shop:
        def __init__(self, ranker):
            self.ranker = ranker

        async def __call__(self, request):
            return await self.ranker.rank.remote(1)

    address = over_http(run, Shop.bind(Ranker.bind()))
    clients(address, 12, run.times(48))


@planted(
    "blocked-replica",
    says=("Reader",),
    never=("a larger max_ongoing_requests, if",),
    beside=("waiting-for-replicas",),
    **WITH,
)
def blocking_replica(run):
    """A coroutine of a replica sleeps where it should await, so that its requests come one by one."""
    is_mended = run.mended

    @deployment(max_ongoing_requests=20)
    class Reader:
        async def __call__(self, request):
            if is_mended:
                await asyncio.sleep(0.1)
            else:
                time.sleep(0.1)  # noqa: ASYNC251  # the planted fault
            return "read"

    address = over_http(run, Reader.bind())
    clients(address, 8, run.times(40))


@planted(on_path="Slow.__call__", beside=("requests-in-turn",), **WITH)
def calls_by_handle(run):
    """The driver calls a slow deployment by handle and waits for each response, one after the other."""
    seconds = run.seconds(0.4, 0.01)

    @deployment()
    class Slow:
        def __call__(self, value):
            return spend(seconds)

    handle = deployed(run, Slow.bind())
    for value in range(run.times(8)):
        run.cost(handle.remote(value).result())


@planted("slow-replica-start", says=("Model",), beside=("worker-start",), **WITH)
def cold_replica(run):
    """A replica loads its model for four seconds, while the driver waits for the application to run."""
    seconds = run.seconds(4, 0.05)

    @deployment()
    class Model:
        def __init__(self):
            spend(seconds)

        def __call__(self, value):
            return value

    with run.costing(less=1.0):
        handle = deployed(run, Model.bind())
    run.start = 0  # that is what is slow
    handle.remote(1).result()


@planted("timed-out", says=("Sleepy",), beside=("failed-spans",), **WITH)
def requests_time_out(run):
    """Callers give up on requests that a deployment takes too long for."""
    seconds = run.seconds(1.5, 0.05)

    @deployment(max_ongoing_requests=4)
    class Sleepy:
        async def __call__(self, value):
            await asyncio.sleep(seconds)
            return value

    handle = deployed(run, Sleepy.bind())
    for value in range(6):
        try:
            with run.costing():
                handle.remote(value).result(timeout_s=0.6)
        except TimeoutError:
            pass


@planted("failed-spans", says=("KeyError",), beside=("requests-in-turn",), **WITH)
def failing_requests(run):
    """A fifth of the requests fail in the deployment behind the ingress."""
    is_mended = run.mended

    @deployment()
    class Users:
        def find(self, number):
            spend(0.03)
            if number % 5 == 0 and not is_mended:
                raise KeyError(number)
            return number

    @deployment()
    class Front:
        def __init__(self, users):
            self.users = users

        async def __call__(self, request):
            return await self.users.find.remote(int(request.query_params["number"]))

    address = over_http(run, Front.bind(Users.bind()))
    for number in range(run.times(30)):
        fetch(f"{address}?number={number}")


@planted(("driver-code", "serial-driver"), at_most={"scheduling": 0.3}, **WITH)
def slow_caller(run):
    """The driver works for a third of a second between its calls of a quick deployment."""

    @deployment()
    class Quick:
        def __call__(self, value):
            return value

    handle = deployed(run, Quick.bind())
    for value in range(run.times(12)):
        run.cost(spend(run.seconds(0.33, 0.01)))
        handle.remote(value).result()


@planted("refused-requests", says=("Payments",), beside=("waiting-for-replicas",), **WITH)
def refused_requests(run):
    """Clients try again, since a deployment lets only two requests wait."""

    @deployment(max_ongoing_requests=20 if run.mended else 2, max_queued_requests=2)
    class Payments:
        async def __call__(self, request):
            await asyncio.sleep(0.2)
            return "paid"

    address = over_http(run, Payments.bind())

    def pay(_):
        while fetch(address) == 503:
            time.sleep(0.1)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(pay, range(run.times(40))))


@planted("loading-models", says=("Zoo.load", "4 models"), beside=("requests-in-turn",), **WITH)
def too_many_models(run):
    """Requests for four models by turns, in a replica that has room for two."""
    from ray import serve

    @deployment(max_ongoing_requests=4)
    class Zoo:
        @serve.multiplexed(max_num_models_per_replica=4 if run.mended else 2)
        async def load(self, model):
            await asyncio.sleep(0.3)
            return model

        async def __call__(self, value):
            await self.load(serve.get_multiplexed_model_id())
            await asyncio.sleep(0.02)
            return value

    handle = deployed(run, Zoo.bind())
    for number in range(run.times(28)):
        begun = time.perf_counter()
        handle.options(multiplexed_model_id=f"model-{number % 4}").remote(number).result()
        if number >= 4:  # each model has to be loaded once
            run.cost(max(0, time.perf_counter() - begun - 0.02))


@planted("requests-in-turn", says=("Shop",), **WITH)
def awaits_in_turn(run):
    """An ingress awaits three deployments one after the other, none of which needs the result of another."""

    @deployment(max_ongoing_requests=50)
    class Part:
        async def __call__(self, value):
            await asyncio.sleep(0.2)
            return value

    parts = [Part.options(name=name).bind() for name in ("Price", "Stock", "Offers")]

    is_mended = run.mended

    @deployment(max_ongoing_requests=50)
    class Shop:
        def __init__(self, *parts):
            self.parts = parts

        async def __call__(self, value):
            if is_mended:
                return await asyncio.gather(*[part.remote(value) for part in self.parts])
            return [await part.remote(value) for part in self.parts]

    handle = deployed(run, Shop.bind(*parts))
    for _ in range(run.times(6)):
        with run.costing(less=0.2):
            at_once(handle, 4)


@planted("requests-in-turn", says=("30 calls of Scorer",), **WITH)
def one_request_at_a_time(run):
    """A driver waits for each response before the next request, of two replicas with room for all."""

    @deployment(num_replicas=2, max_ongoing_requests=20)
    class Scorer:
        async def __call__(self, value):
            await asyncio.sleep(0.15)
            return value

    handle = deployed(run, Scorer.bind())
    with run.costing(less=0.15):
        if run.mended:
            at_once(handle, 30)
            return
        for value in range(run.times(30)):
            handle.remote(value).result()


@planted("slow-replica", says=("Ranker",), beside=("waiting-for-replicas", "slow-requests"), **WITH)
def slow_replica(run):
    """One of three replicas takes ten times as long."""
    seconds, place = run.seconds(1, 0.1), os.path.join(os.environ["CORPUS_FOLDER"], "slow")

    @deployment(num_replicas=3, max_ongoing_requests=20)
    class Ranker:
        def __init__(self):
            try:
                os.mkdir(place)
                self.seconds = seconds
            except FileExistsError:
                self.seconds = 0.1

        async def __call__(self, request):
            await asyncio.sleep(self.seconds)
            return "ranked"

    address = over_http(run, Ranker.bind())
    clients(address, 8, run.times(80))


@planted("slow-deliveries", says=("Sink",), beside=("requests-in-turn",), **WITH)
def large_payloads(run):
    """A deployment passes long lists to another one, which are pickled piece by piece."""
    items = 1000 if run.mended else 4_000_000

    @deployment(max_ongoing_requests=10)
    class Sink:
        def __call__(self, values):
            return len(values)

    @deployment(max_ongoing_requests=10)
    class Source:
        def __init__(self, sink):
            self.sink, self.values = sink, list(range(items))

        async def __call__(self, value):
            return await self.sink.remote(self.values)

    handle = deployed(run, Source.bind(Sink.bind()))
    for value in range(run.times(12)):
        with run.costing():
            handle.remote(value).result()


@planted("waiting-for-replicas", says=("Embedder", "batches had at most 1"), **WITH)
def batches_of_one(run):
    """A deployment that batches requests accepts only one at a time."""
    from ray import serve

    @deployment(max_ongoing_requests=20 if run.mended else 1)
    class Embedder:
        @serve.batch(max_batch_size=16, batch_wait_timeout_s=0.02)
        async def embed(self, values):
            await asyncio.sleep(0.15)
            return values

        async def __call__(self, value):
            return await self.embed(value)

    handle = deployed(run, Embedder.bind())
    with run.costing(less=0.15):
        at_once(handle, run.times(32))


@planted("waiting-for-replicas", says=("Late", "ready only after"), beside=("slow-replica-start",), **WITH)
def replicas_come_late(run):
    """Autoscaling begins with one replica, and the others load for two seconds while a burst of requests waits."""
    scaling = {
        "min_replicas": 4 if run.mended else 1,
        "max_replicas": 4,
        "target_ongoing_requests": 1,
        "upscale_delay_s": 0.5,
        "metrics_interval_s": 0.2,
        "look_back_period_s": 0.5,
    }

    @deployment(max_ongoing_requests=2, autoscaling_config=scaling)
    class Late:
        def __init__(self):
            spend(2)

        async def __call__(self, request):
            await asyncio.sleep(0.3)
            return "late"

    address = over_http(run, Late.bind())
    clients(address, 8, run.times(80))


@planted(
    "blocked-replica",
    says=("Features",),
    never=("a larger max_ongoing_requests, if",),
    beside=("slow-replica-start",),
    **WITH,
)
def blocking_get_in_replica(run):
    """A coroutine of a replica waits for tasks with a blocking get."""
    import ray

    @ray.remote(num_cpus=1)
    def feature(value):
        return spend(0.1)

    is_mended = run.mended

    @deployment(max_ongoing_requests=40)
    class Features:
        def __init__(self):
            ray.get([feature.remote(0) for _ in range(6)])

        async def __call__(self, value):
            ref = feature.remote(value)
            return await ref if is_mended else ray.get(ref)

    handle = deployed(run, Features.bind())
    with run.costing(less=0.1):
        at_once(handle, run.times(24))


@healthy(**WITH)
def balanced_application(run):
    """Two replicas with room for all requests of eight clients."""

    @deployment(num_replicas=2, max_ongoing_requests=8)
    class Scorer:
        async def __call__(self, request):
            await asyncio.sleep(0.25)
            return "ok"

    address = over_http(run, Scorer.bind())
    clients(address, 8, 80)


@healthy(**WITH)
def computing_replica(run):
    """A deployment with plain methods, which Serve runs in threads; they compute for a short time."""

    @deployment(max_ongoing_requests=8)
    class Light:
        def __call__(self, request):
            burn(0.004)
            spend(0.15)
            return "ok"

    address = over_http(run, Light.bind())
    clients(address, 4, 60)


@healthy(**WITH)
def passed_on_response(run):
    """An ingress passes the response of one deployment to the next one, which needs it."""

    @deployment(max_ongoing_requests=20)
    class Prepare:
        async def __call__(self, value):
            await asyncio.sleep(0.1)
            return value

    @deployment(max_ongoing_requests=20)
    class Infer:
        async def __call__(self, value):
            await asyncio.sleep(0.15)
            return value

    @deployment(max_ongoing_requests=20)
    class Front:
        def __init__(self, prepare, infer):
            self.prepare, self.infer = prepare, infer

        async def __call__(self, request):
            return await self.infer.remote(self.prepare.remote("ok"))

    address = over_http(run, Front.bind(Prepare.bind(), Infer.bind()))
    clients(address, 4, 40)


if __name__ == "__main__":
    main()
