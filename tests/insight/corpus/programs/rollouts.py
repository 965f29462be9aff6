"""Rollouts for reinforcement learning: steps whose trajectories do not end together."""

import asyncio

import ray

from corpus import planted, spend
from corpus.running import main
from ray_tracing_hooks import rl


@ray.remote(num_cpus=0)
class Rollouts:
    async def generate(self, step, samples, longest):
        async def one(sample, rollout):
            with rl.trajectory(step, sample, rollout):
                usual = 0.25 + 0.01 * (sample % 4)
                await asyncio.sleep(longest if (sample, rollout) == (5, 1) else usual)

        await asyncio.gather(*(one(sample, rollout) for sample in samples for rollout in range(2)))


@planted("long-tail", says=("of 32 trajectories", "sample 5, rollout 1"), beside=("barrier", "few-at-once"))
def long_tail(run):
    """Of the 32 trajectories of each step, one takes five times as long as the others."""
    workers = [Rollouts.remote() for _ in range(2)]
    for step in range(run.times(3)):
        longest = run.seconds(1.4, 0.3)
        ray.get([worker.generate.remote(step, range(8 * n, 8 * n + 8), longest) for n, worker in enumerate(workers)])
        run.cost(longest - 0.28)
        spend(0.2)


if __name__ == "__main__":
    main()
