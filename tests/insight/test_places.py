"""Where spans were recorded, whoever recorded them."""

from __future__ import annotations

from made_spans import CONSUMER, PRODUCER, process, span

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.processes import Places, places
from ray_tracing_hooks._insight.model.span import SERVER, Span
from ray_tracing_hooks._insight.model.table import Table

DRIVER = process(pid=1, **{"ray.worker.process_type": "driver"})


def located(*spans: Span) -> tuple[Places, dict[str, str]]:
    """The places, and the label of that of each span by the span's name."""
    table = Table.of(spans)
    found = places(table)
    return found, {table.names[table.name[row]]: found.place(row).label for row in range(len(table))}


def test_a_process_is_told_by_its_resource() -> None:
    """Spans of one process share a place, whatever they are; its label says what Ray made of the process."""
    actor = {"ray.actor_id": "3f2a0000", "ray.actor_class": "module.Trainer"}
    found, labels = located(
        span(1, 0, 100, name="drive", where=DRIVER),
        span(2, 1, 2, 1, name="submit", kind=PRODUCER, where=DRIVER, attributes={"ray.actor_id": "3f2a0000"}),
        span(3, 3, 9, 2, name="train", kind=CONSUMER, where=process(pid=3), attributes=actor),
        span(4, 4, 5, 3, name="user", where=process(pid=3)),
        span(5, 4, 5, 1, name="task", kind=CONSUMER, where=process("ccccdddd", pid=4)),
    )
    assert labels == {
        "drive": "driver (pid 1)",
        "submit": "driver (pid 1)",
        "train": "Trainer#3f2a0000 (pid 3)",
        "user": "Trainer#3f2a0000 (pid 3)",
        "task": "worker 00000004 (pid 4)",
    }
    assert [place.node_label for place in found.places] == ["node aaaabbbb (10.0.0.7)"] * 2 + [
        "node ccccdddd (10.0.0.7)"
    ]


def test_replicas_and_proxies_of_ray_serve_are_told_by_their_spans() -> None:
    """A replica also by its start, and if it receives requests itself, or a library makes another span of them."""
    front = {"ray.serve.deployment": "Front", "ray.serve.replica_id": "kogt0fru"}
    model = {"ray.serve.deployment": "Model", "ray.serve.replica_id": "szid6cus"}
    direct = {"ray.serve.deployment": "Api", "ray.serve.replica_id": "3z1p36jt"}
    _, labels = located(
        span(1, 0, 100, name="GET /", kind=SERVER, where=process(pid=2), scope=names.SCOPE),
        span(2, 1, 2, 1, name="Front.__call__ serve.remote", kind=PRODUCER, where=process(pid=2), scope=names.SCOPE),
        span(3, 3, 90, 2, name="run", kind=SERVER, where=process(pid=3), scope=names.SCOPE),
        span(4, 4, 90, 2, name="Front.__call__ serve.replica", kind=CONSUMER, where=process(pid=3), attributes=front),
        span(5, 5, 6, name="Model.__init__ serve.replica", where=process(pid=4), attributes=model),
        span(6, 5, 6, name="GET /api", kind=SERVER, where=process(pid=5), attributes=direct, scope=names.SCOPE),
        span(7, 5, 6, name="GET /mine", kind=SERVER, where=process(pid=6)),
        span(8, 5, 6, name="GET /driver", kind=SERVER, where=DRIVER, scope=names.SCOPE),
    )
    assert labels == {
        "GET /": "Serve proxy (pid 2)",
        "Front.__call__ serve.remote": "Serve proxy (pid 2)",
        "run": "Front#kogt0fru (pid 3)",
        "Front.__call__ serve.replica": "Front#kogt0fru (pid 3)",
        "Model.__init__ serve.replica": "Model#szid6cus (pid 4)",
        "GET /api": "Api#3z1p36jt (pid 5)",
        "GET /mine": "worker 00000006 (pid 6)",
        "GET /driver": "driver (pid 1)",
    }


def test_the_name_of_an_actor_and_its_placement_group_are_kept() -> None:
    """An actor with a name is shown by it."""
    told = {
        "ray.actor_id": "ab",
        "ray.actor_class": "T",
        "ray.actor_name": "chief",
        "ray.placement_group_id": "f00d",
    }
    found, _ = located(span(1, 0, 1, kind=CONSUMER, attributes=told))
    (place,) = found.places
    assert (place.label, place.placement_groups) == ('T "chief" (pid 100)', ["f00d"])


def test_the_node_of_the_driver_comes_first_and_the_driver_first_on_it() -> None:
    """Whatever began first: clocks differ, and workers of another job may be older."""
    found, _ = located(
        span(1, 0, 1, where=process("zzzz", pid=9)),
        span(2, 1, 2, where=process(pid=5)),
        span(3, 5, 9, where=DRIVER),
    )
    assert [(place.node, place.pid) for place in found.places] == [("aaaabbbb", "1"), ("aaaabbbb", "5"), ("zzzz", "9")]


def test_stock_spans_tell_their_process_by_their_attributes() -> None:
    """Ray's own tracing has one Resource for all; a span of a library below is where its parent is."""
    bare = {"service.name": "unknown_service"}
    here = {"ray.node_id": "n1", "ray.worker_id": "w1", "ray.pid": "11"}
    there = {"ray.node_id": "n1", "ray.worker_id": "w2", "ray.pid": "12"}
    found, labels = located(
        span(1, 0, 10, name="f ray.remote", kind=PRODUCER, where=bare, attributes=here),
        span(2, 2, 8, 1, name="f ray.remote_worker", kind=CONSUMER, where=bare, attributes=there),
        span(3, 3, 4, 2, name="requests", where=bare),
        span(4, 3, 4, 3, name="inner", where=bare),
        span(5, 3, 4, name="outside", where=bare),
    )
    assert labels == {
        "f ray.remote": "worker w1 (pid 11)",
        "f ray.remote_worker": "worker w2 (pid 12)",
        "requests": "worker w2 (pid 12)",
        "inner": "worker w2 (pid 12)",
        "outside": "unknown_service",
    }
    assert len(found.places) == 3


def test_spans_of_other_tools_are_told_apart_by_their_service() -> None:
    """A file of any other tool has places too."""
    _, labels = located(
        span(1, 0, 10, name="a", where={"service.name": "shop"}),
        span(2, 0, 10, 1, name="b", where={"service.name": "bank"}),
        span(3, 0, 10, 2, name="c", where={}),
    )
    assert labels == {"a": "shop", "b": "bank", "c": "process"}


def test_parents_that_form_a_circle_have_a_place() -> None:
    """No honest program writes them."""
    found, _ = located(span(1, 0, 1, 2, where={}), span(2, 0, 1, 1, where={}), span(3, 0, 1, 3, where={}))
    assert len(found.places) == 1


def test_no_spans_have_no_places() -> None:
    """An empty table is a table."""
    assert located()[0].places == []
