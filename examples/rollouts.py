"""Rollouts for reinforcement learning: one trajectory of each step takes long, and the step waits for it.

Run it, then ask what a step waited for:

    python examples/rollouts.py
    ray-tracing-hooks summary
    ray-tracing-hooks tree --name ray.rl.trajectory --attribute 'ray.rl.*'

You see the finding "Steps have a long tail of trajectories", with the sample. What trajectories called is recorded for
half of the samples, with all their rollouts.
"""

import asyncio

import ray

from ray_tracing_hooks import rl


@ray.remote(num_cpus=0)
class Tool:
    async def use(self, seconds):
        await asyncio.sleep(seconds)  # stands for a sandbox or a search
        return 1


@ray.remote(num_cpus=0)
class Rollouts:
    def __init__(self, tool):
        self.tool = tool

    async def play(self, step, sample, rollout):
        with rl.trajectory(step, sample, rollout, staleness=0, share=0.5) as span:
            is_long = (sample, rollout) == (3, 1)
            reward = await self.tool.use.remote(1.5 if is_long else 0.2)
            span.set_attribute("ray.rl.outcome", "accepted" if reward else "rejected")
            return reward

    async def generate(self, step, samples):
        return await asyncio.gather(*(self.play(step, sample, rollout) for sample in samples for rollout in range(2)))


if __name__ == "__main__":
    ray.init(_tracing_startup_hook="ray_tracing_hooks.local:setup")
    tool = Tool.remote()
    workers = [Rollouts.remote(tool) for _ in range(2)]
    for step in range(3):
        samples = [range(4), range(4, 8)]
        rewards = ray.get([worker.generate.remote(step, own) for worker, own in zip(workers, samples, strict=True)])
        print(f"step {step}: {sum(map(sum, rewards))} rewards")
