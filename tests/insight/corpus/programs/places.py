"""Resources that are scarce or held, processes that have to start, and nodes that are slow."""

import time

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from corpus import planted, spend
from corpus.running import main


@ray.remote(num_cpus=2)
class Notebook:
    def hello(self):
        return True


@ray.remote(num_cpus=1)
def report(number):
    spend(0.3)
    return time.time()


@planted("waiting-for-resources", says=("report", "Notebook"), beside=("worker-start",), cluster={"num_cpus": 4})
def idle_actors_hold_all(run):
    """Two idle actors hold all processors for four seconds, and nothing else can run."""
    notebooks = [Notebook.remote() for _ in range(1 if run.mended else 2)]
    ray.get([notebook.hello.remote() for notebook in notebooks])
    begun = time.time()
    refs = [report.remote(number) for number in range(2)]
    ray.wait(refs, num_returns=2, timeout=run.seconds(4))
    for notebook in notebooks:
        ray.kill(notebook)
    notebooks.clear()
    run.cost(max(0, min(ray.get(refs)) - begun - 0.3))


@ray.remote(num_cpus=0, resources={"license": 1})
def licensed(number, seconds):
    return spend(seconds)


@planted(
    "waiting-for-resources",
    says=("licensed", "license"),
    at_most={"scheduling": 1.0},
    cluster={"resources": {"license": 1}},
)
def one_license(run):
    """Every task needs a resource of which there is one, so they run one after the other while processors are free."""
    took = ray.get([licensed.remote(number, run.seconds(0.25, 0.01)) for number in range(run.times(16))])
    run.cost(sum(took[1:]))


@ray.remote(num_cpus=3)
def big(seconds):
    return spend(seconds)


@ray.remote(num_cpus=3)
def also_big(seconds):
    return spend(seconds)


@planted("waiting-for-resources", says=("also_big",), states=True)
def large_request(run):
    """Two tasks ask for three of four processors each, so that one waits for the other although it needs but one."""
    cpus = 1 if run.mended else 3
    first = big.options(num_cpus=cpus).remote(run.seconds(3))
    spend(0.2)
    ray.get(also_big.options(num_cpus=cpus).remote(run.seconds(1)))
    run.cost(ray.get(first) - 0.2)


@ray.remote(num_cpus=1)
def trainer(seconds):
    return spend(seconds)


@planted("waiting-for-resources", says=("trainer",), beside=("worker-start",), states=True)
def placement_group_waits(run):
    """A placement group waits until another one, which is not in use, is removed after three seconds."""
    held = placement_group([{"CPU": 1}] * (1 if run.mended else 3))
    ray.get(held.ready())
    wanted = placement_group([{"CPU": 1}] * 3)
    begun = time.perf_counter()
    refs = [
        trainer.options(scheduling_strategy=PlacementGroupSchedulingStrategy(wanted, bundle)).remote(0.3)
        for bundle in range(3)
    ]
    ray.wait(refs, num_returns=3, timeout=run.seconds(3))
    remove_placement_group(held)
    ray.get(refs)
    run.cost(max(0, time.perf_counter() - begun - 0.3))


@ray.remote
def with_environment(number):
    return spend(0.05)


@planted("worker-start", at_most={"scheduling": 0.6})
def environment_for_each(run):
    """Each of six calls has an environment of its own, so a new process starts for each."""
    with run.costing(less=0.3):
        for number in range(run.times(6)):
            variables = {"env_vars": {"NUMBER": "0" if run.mended else str(number)}}
            ray.get(with_environment.options(runtime_env=variables).remote(number))


@ray.remote(max_calls=1)
def leaky(number):
    return spend(0.05)


@ray.remote
def not_leaky(number):
    return spend(0.05)


@planted("worker-start", at_most={"scheduling": 0.6}, beside=("get-in-loop",))
def process_for_each(run):
    """Each call ends its worker (max_calls=1), and the next one waits for another to start."""
    with run.costing(less=0.4):
        for number in range(run.times(10)):
            ray.get((not_leaky if run.mended else leaky).remote(number))


class SlowImport:
    """Takes long to unpickle, as a model or a package does that is loaded with the arguments."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __reduce__(self):
        return _slowly, (self.seconds,)


def _slowly(seconds):
    time.sleep(seconds)
    return seconds


@ray.remote
def infer(model, number):
    return spend(0.1)


@planted("slow-loading", says=("infer",), at_most={"worker start": 0.2}, states=True)
def slow_loading(run):
    """The argument of each call takes a second and more to unpickle, before its code starts."""
    for number in range(run.times(3)):
        with run.costing(less=0.1):
            ray.get(infer.remote(SlowImport(run.seconds(1.2, 0.01)), number))


@ray.remote(num_cpus=1)
def chunk(number, seconds):
    return spend(seconds)


SLOW = {"num_cpus": 3, "resources": {"usual": 100}, "nodes": [{"num_cpus": 3, "resources": {"old": 100}}]}
"""A cluster of two nodes."""


@planted("slow-place", says=("node",), beside=("worker-start",), cluster=SLOW, at_most={"scheduling": 0.2})
def slow_node(run):
    """Tasks take five times as long on one of two nodes."""
    slow = [chunk.options(resources={"old": 1}).remote(number, run.seconds(1, 0.2)) for number in range(15)]
    usual = [chunk.options(resources={"usual": 1}).remote(number, 0.2) for number in range(12)]
    ray.get(usual)
    run.cost(sum(ray.get(slow)) / 3 - 1)


@ray.remote(num_cpus=0.5)
class Worker:
    def __init__(self, seconds):
        self.seconds = seconds

    def step(self, number):
        return spend(self.seconds)


@planted(
    ("slow-place", "bottleneck-actor"),
    beside=("worker-start",),
    cluster={**SLOW, "num_cpus": 4},
    at_most={"scheduling": 0.2},
)
def slow_node_of_actors(run):
    """Rounds of one step for each of six actors, of which those of one node take three times as long."""
    kinds = ["usual"] * 4 + ["old"] * 2
    workers = [
        Worker.options(resources={kind: 1}).remote(run.seconds(0.45, 0.15) if kind == "old" else 0.15) for kind in kinds
    ]
    for number in range(run.times(10)):
        took = ray.get([worker.step.remote(number) for worker in workers])
        run.cost(max(took) - 0.15)


@ray.remote(num_cpus=0, num_gpus=1)
class Gpu:
    def train(self, seconds):
        return spend(seconds)


@ray.remote(num_cpus=1)
def load_batch(seconds):
    return spend(seconds)


@planted("idle-accelerator", says=("GPU",), cluster={"num_gpus": 1}, beside=("get-in-loop", "bottleneck-actor"))
def starved_gpu(run):
    """A GPU waits half a second for each batch, which it trains in a twentieth."""
    gpu = Gpu.remote()
    for _ in range(run.times(8)):
        run.cost(ray.get(load_batch.remote(run.seconds(0.5, 0.01))))
        ray.get(gpu.train.remote(0.05))


@planted("waiting-for-resources", "straggler", beside=("worker-start",), cluster={"num_cpus": 4})
def held_and_straggler(run):
    """Idle actors hold all processors for three seconds; then one of twelve tasks takes two seconds longer."""
    notebooks = [Notebook.remote() for _ in range(1 if run.mended else 2)]
    ray.get([notebook.hello.remote() for notebook in notebooks])
    begun = time.time()
    refs = [chunk.remote(number, run.seconds(2.2, 0.2) if number == 9 else 0.2) for number in range(12)]
    ray.wait(refs, num_returns=1, timeout=run.seconds(3))
    for notebook in notebooks:
        ray.kill(notebook)
    notebooks.clear()
    ray.wait(refs, num_returns=1)
    run.cost(max(0, time.time() - begun - 0.2))
    run.cost(max(ray.get(refs)) - 0.2, 1)


if __name__ == "__main__":
    main()
