"""Three small frameworks for reinforcement learning, each with a controller and workers as those in use have them: a
fused worker that is called by role and method, groups of isolated workers that are killed in the end, and batches of a
method whose name is an argument. Rewards and tokenizers run in threads.
"""

import asyncio
import concurrent.futures
import functools
import sys
import threading

import harness
import ray
from opentelemetry import trace
from shared import signals

tracer = trace.get_tracer("frameworks")


def step(name, **attributes):
    return tracer.start_as_current_span(name, attributes=attributes)


# A fused worker: one actor has several roles, and is told which method of which role to run.


class Role:
    def __init__(self, rank):
        self.rank = rank

    def generate(self, prompts):
        with step("user generate", rank=self.rank):
            return [prompt + self.rank for prompt in prompts]

    def update(self, samples):
        with step("user update", rank=self.rank):
            return sum(samples)


@ray.remote(num_cpus=0)
class FusedWorker:
    def __init__(self, rank):
        self.roles = {"actor": Role(rank), "critic": Role(rank)}

    def _fuw_execute(self, method_name, *args, **kwargs):
        role, _, method = method_name.partition("_fwmn_")
        return getattr(self.roles[role], method)(*args, **kwargs)

    def execute_with_func_generator(self, func, *args):
        return func(self, *args)


def count_roles(worker, more):
    with step("user count"):
        return len(worker.roles) + more


@ray.remote(num_cpus=0)
class AgentLoop:
    """Its tokenizer and its rewards block, so they run in threads."""

    def __init__(self):
        self.pool = concurrent.futures.ThreadPoolExecutor(2)

    async def run(self, prompt):
        loop = asyncio.get_running_loop()
        with step("user trajectory", prompt=prompt):
            tokens = await loop.run_in_executor(None, self.tokenize, prompt)
            reward = await loop.run_in_executor(self.pool, functools.partial(self.reward, prompt, scale=2))
            return tokens + reward + await asyncio.to_thread(self.tokenize, prompt)

    def tokenize(self, prompt):
        with step("user tokenize", prompt=prompt):
            return prompt

    def reward(self, prompt, scale):
        with step("user reward", prompt=prompt):
            return scale * prompt


def fused():
    with step("user fused"):
        workers = [FusedWorker.remote(rank) for rank in range(2)]
        samples = ray.get([worker._fuw_execute.remote("actor_fwmn_generate", [1, 2]) for worker in workers])
        updates = [worker._fuw_execute.remote("critic_fwmn_update", samples[0]) for worker in workers]
        counted = ray.get(workers[0].execute_with_func_generator.remote(count_roles, 1))
        called = ray.get([worker.__ray_call__.remote(lambda self: self.roles.keys() and 1) for worker in workers])
        agent = AgentLoop.remote()
        trajectories = ray.get([agent.run.remote(prompt) for prompt in range(3)])
        updated = ray.get(updates)
        for actor in (*workers, agent):
            ray.kill(actor)
    return samples, updated, counted, called, trajectories


# Isolated workers: an initializer makes each of them, and they are killed in the end, with what they have not ended.


@ray.remote(num_cpus=0)
class Initializer:
    def create_worker(self, rank):
        self.worker = PolicyWorker.remote(rank)
        return self.worker


@ray.remote(num_cpus=0)
class PolicyWorker:
    def __init__(self, rank):
        self.rank = rank
        self.refitted = threading.Event()

    def train(self, batch):
        with step("user train", rank=self.rank):
            return sum(batch) + self.rank

    def refit(self):
        """Weights are received by a thread, which other calls wait for."""

        def receive():
            with step("user receive", rank=self.rank):
                self.refitted.set()

        threading.Thread(target=receive, daemon=True).start()
        return self.refitted.wait(30)

    def hang(self, told):
        with step("user last", rank=self.rank):
            pass
        ray.get(told.send.remote(f"hangs {self.rank}"))
        harness.until_killed_in_thread()


class Group:
    """Runs a method on all workers, by its name."""

    def __init__(self, size):
        self.initializers = [Initializer.remote() for _ in range(size)]
        self.workers = ray.get([each.create_worker.remote(rank) for rank, each in enumerate(self.initializers)])

    def run_all(self, method_name, *args):
        return [getattr(worker, method_name).remote(*args) for worker in self.workers]

    def shutdown(self):
        for actor in self.workers + self.initializers:
            ray.kill(actor)


def isolated():
    with step("user isolated"):
        group = Group(2)
        trained = ray.get(group.run_all("train", [1, 2]))
        refitted = ray.get(group.run_all("refit"))
        hanging = group.run_all("hang", signals())
        ray.get([signals().wait.remote(f"hangs {rank}") for rank in range(2)])
        group.shutdown()
        _, waiting = ray.wait(hanging, num_returns=2, timeout=30)
    return trained, refitted, len(waiting)


# Batches: the name of the method and the data are arguments, and an engine passes methods on to workers of its own.


@ray.remote(num_cpus=0)
class ModelActor:
    def execute_batch(self, method_name, data, begin, end):
        return [getattr(self, method_name)(each) for each in data["values"][begin:end]]

    def forward(self, value):
        with step("user forward"):
            return value * value

    def apply(self, func):
        return func(self)


@ray.remote(num_cpus=0)
class Engine:
    def collective_rpc(self, method, args=()):
        return getattr(self, method)(*args)

    def update_weight(self, name):
        with step("user update weight"):
            return name


def batches():
    with step("user batches"):
        actors = [ModelActor.remote() for _ in range(2)]
        data = ray.put({"values": [1, 2, 3, 4]})
        parts = [(actor, 2 * rank) for rank, actor in enumerate(actors)]
        forward = ray.get([actor.execute_batch.remote("forward", data, begin, begin + 2) for actor, begin in parts])
        prefetched = []

        def prefetch():
            with step("user prefetch"):
                prefetched.append(ray.get(actors[0].execute_batch.remote("forward", {"values": [5]}, 0, 1)))

        prefetching = threading.Thread(target=prefetch, daemon=True)
        prefetching.start()
        prefetching.join()
        engine = Engine.remote()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            rpc = ray.get(pool.submit(engine.collective_rpc.remote, "update_weight", args=("w",)).result())
        applied = ray.get(actors[1].apply.remote(lambda actor: actor.forward(6)))
    return forward, prefetched, rpc, applied


def failing():
    """What a thread raises is what it raises without tracing."""

    def fails():
        raise KeyError("thread")

    with step("user failing"), concurrent.futures.ThreadPoolExecutor(1) as pool:
        return repr(pool.submit(fails).exception())


def main():
    return [fused(), isolated(), batches(), failing()]


if __name__ == "__main__":
    sys.setswitchinterval(0.001)
    harness.run(main)
