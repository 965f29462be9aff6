"""What the cluster knows of the tasks of a program. Processes tell every second."""

import ray
from ray._private import state
from ray.core.generated.gcs_pb2 import TaskEvents
from ray.util.state.common import protobuf_to_task_state_dict


def tasks_of_this_job():
    """An entry for each attempt."""
    job = ray.get_runtime_context().get_job_id()
    if hasattr(state.state, "_connect_and_get_accessor"):
        accessor = state.state._connect_and_get_accessor()
    else:  # before Ray 2.55
        ray.cluster_resources()  # connects
        accessor = state.state.global_state_accessor
    events = [protobuf_to_task_state_dict(TaskEvents.FromString(event)) for event in accessor.get_task_events()]
    return [one for one in events if one.get("job_id") == job]


def states_of(task):
    return [event["state"] for event in task.get("events") or []]
