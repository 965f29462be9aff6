"""Where work runs: placement groups, resources, labels, affinity; and functions of other languages."""

import ray
import scenarios
from ray import cross_language
from ray.util.placement_group import (
    get_current_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import (
    In,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)
from scenarios import attempt, scenario


def where():
    group = get_current_placement_group()
    context = ray.get_runtime_context()
    resources = {name: amount for name, amount in context.get_assigned_resources().items() if "_group_" not in name}
    return [group is not None, group and group.bundle_count, resources, context.get_node_id()]


@ray.remote
def task():
    return where()[:3]


@ray.remote
def nested():
    return [where()[:2], ray.get(task.options(num_cpus=0).remote())]


@ray.remote
class Actor:
    def where(self):
        return where()[:3]

    def below(self):
        return ray.get(task.options(num_cpus=0).remote())


@scenario
def a_placement_group():
    group = placement_group([{"CPU": 1}, {"CPU": 1, "memory": 1000}], strategy="PACK", name="conform-group")
    ray.get(group.ready(), timeout=60)
    into = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=1)
    captured = PlacementGroupSchedulingStrategy(group, 0, placement_group_capture_child_tasks=True)
    wrong = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=7)
    actor = Actor.options(scheduling_strategy=captured, num_cpus=1).remote()
    table = placement_group_table(group)
    result = [
        group.wait(60),
        group.bundle_specs,
        ray.util.get_placement_group("conform-group") == group,
        [table[key] for key in ("name", "bundles", "strategy", "state")],
        ray.get(task.options(scheduling_strategy=into).remote()),
        ray.get(nested.options(scheduling_strategy=into).remote()),
        ray.get(nested.options(scheduling_strategy=captured, num_cpus=0).remote()),
        ray.get([actor.where.remote(), actor.below.remote()]),
        attempt(lambda: task.options(scheduling_strategy=wrong).remote()),
        attempt(lambda: task.options(scheduling_strategy=into, num_cpus=3).remote()),
        get_current_placement_group() is None,
    ]
    remove_placement_group(group)
    return [*result, attempt(lambda: ray.get(actor.where.remote()))[0]]


@scenario
def resources_and_strategies():
    here = ray.get_runtime_context().get_node_id()
    hard = NodeAffinitySchedulingStrategy(here, soft=False)
    nowhere = NodeAffinitySchedulingStrategy("ab" * 28, soft=False)
    anywhere = NodeAffinitySchedulingStrategy("ab" * 28, soft=True)
    # It has been written in two ways.
    label = next(name for name in ray.nodes()[0]["Labels"] if name in {"ray.io/node-id", "ray.io/node_id"})
    labels = NodeLabelSchedulingStrategy(hard={label: In(here)})
    infeasible = task.options(resources={"unheard-of": 1}).remote()
    spread = [task.options(num_cpus=amount, scheduling_strategy="SPREAD").remote() for amount in (0, 0.5, 2)]
    result = [
        ray.get(spread),
        ray.get(task.options(scheduling_strategy=hard).remote()),
        ray.get(task.options(scheduling_strategy=anywhere).remote()),
        ray.get((_actor := Actor.options(scheduling_strategy=labels).remote()).where.remote()),
        attempt(lambda: ray.get(task.options(label_selector={label: here}).remote())),
        attempt(lambda: ray.get(task.options(scheduling_strategy=nowhere).remote()))[0],
        attempt(lambda: ray.get(infeasible, timeout=0.2)),
        attempt(lambda: task.options(num_cpus=-1).remote()),
        attempt(lambda: task.options(scheduling_strategy="FAR").remote()),
        attempt(lambda: task.options(resources={"CPU": 1}).remote()),
        attempt(lambda: Actor.options(label_selector={"a b": "c"}).remote()),
    ]
    ray.cancel(infeasible)
    return result


@scenario
def functions_and_actors_of_other_languages():
    java = cross_language.java_function("com.example.Math", "add")
    cpp = cross_language.cpp_function("Plus")
    actor = cross_language.java_actor_class("com.example.Counter")
    return [
        [type(each).__name__ for each in (java, cpp, actor)],
        attempt(lambda: java.remote(1)),
        attempt(lambda: java.remote()),
        attempt(lambda: java.remote(a=1)),
        attempt(lambda: java(1)),
        attempt(lambda: cpp.remote(1)),
        attempt(lambda: actor.remote(1)),
        attempt(lambda: actor.options(name="java").remote(a=1)),
        attempt(lambda: actor(1)),
    ]


if __name__ == "__main__":
    scenarios.run()
