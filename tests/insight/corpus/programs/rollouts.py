"""Rollouts for reinforcement learning: steps whose trajectories do not end together."""

import asyncio

import ray

from corpus import healthy, planted, spend
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


@ray.remote(num_cpus=0, max_concurrency=5)
class Player:
    def play(self, step, sample, seconds):
        with rl.trajectory(step, sample):
            spend(seconds)


@planted("long-tail", says=("the last 2 of 20 trajectories",), beside=("barrier", "unequal-work"))
def two_long_episodes(run):
    """Actors play in threads, and two of 20 trajectories are long. The driver trains when all have ended."""
    players = [Player.remote() for _ in range(4)]
    ray.get([player.play.remote(0, 0, 0) for player in players])
    longest = run.seconds(2.5, 0.3)
    seconds = [longest if sample in (3, 6) else 0.3 for sample in range(20)]
    ray.get([players[sample % 4].play.remote(1, sample, each) for sample, each in enumerate(seconds)])
    run.cost(longest - 0.3)
    spend(0.3)


@ray.remote(num_cpus=0)
class Pipelined:
    async def generate(self, steps):
        async def one(step, sample):
            with rl.trajectory(step, sample):
                await asyncio.sleep(1.2 if sample == 5 else 0.3)

        late = []
        for step in range(steps):
            pending = [asyncio.create_task(one(step, sample)) for sample in range(16)]
            late.append(pending.pop(5))
            await asyncio.gather(*pending)
        await asyncio.gather(*late)


@healthy(at_most={"scheduling": 0.3})
def steps_overlap(run):
    """One trajectory of each step is long, and the next step's go on beside it."""
    ray.get(Pipelined.remote().generate.remote(6))


if __name__ == "__main__":
    main()
