"""RLlib: two iterations of PPO on CartPole, with two env runners and a learner that are actors, and an evaluation."""

import harness
import ray
from opentelemetry import trace
from ray.rllib.algorithms.ppo import PPOConfig

tracer = trace.get_tracer("reinforcement")


def main():
    with tracer.start_as_current_span("user learning"):
        algorithm = (
            PPOConfig()
            .environment("CartPole-v1")
            .env_runners(num_env_runners=2, num_cpus_per_env_runner=0.25)
            .learners(num_learners=1, num_cpus_per_learner=0.25)
            .evaluation(evaluation_interval=2, evaluation_duration=1, evaluation_num_env_runners=0)
            .training(train_batch_size_per_learner=400, minibatch_size=100, num_epochs=1)
            .debugging(seed=1)
            .build_algo()
        )
        results = [algorithm.train() for _ in range(2)]
        algorithm.stop()
    return {
        "timers": sorted(results[-1]["timers"]),
        "iteration": results[-1]["training_iteration"],
        "sampled": results[-1]["num_env_steps_sampled_lifetime"],
        "nodes": len(ray.nodes()),
    }


if __name__ == "__main__":
    harness.run(main)
