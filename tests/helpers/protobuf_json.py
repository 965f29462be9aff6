"""OTLP as protobuf's own classes write and read it."""

from __future__ import annotations

import ast
import base64
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

_IDS = ("traceId", "spanId", "parentSpanId")


def by_protobuf(message: Message) -> Any:
    """The message as protobuf's JSON, with the ids in hex and integer enums: an account independent of ours."""
    described = MessageToDict(message, use_integers_for_enums=True)
    links = described.get("links", [])
    for holder in (described, *links):
        for name in _IDS:
            if name in holder:
                holder[name] = base64.b64decode(holder[name]).hex()
    return described


def with_protobuf_ids(value: Any) -> Any:
    """OTLP-JSON as protobuf's own JSON, which has base64 for its hexadecimal ids: the one difference in the way."""
    if isinstance(value, dict):
        return {
            key: base64.b64encode(bytes.fromhex(item)).decode() if key in _IDS else with_protobuf_ids(item)
            for key, item in value.items()
        }
    return [with_protobuf_ids(item) for item in value] if isinstance(value, list) else value


class HasAttributes(Protocol):
    """A span, an event of one, a log record, ..."""

    @property
    def attributes(self) -> Iterable[KeyValue]: ...


def attributes(item: HasAttributes) -> dict[str, Any]:
    """By key, what is in the field of the value that is set."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value") or "") for each in item.attributes}


def generated(folder: Path, *known: ModuleType) -> Callable[[str], Any]:
    """A function that returns the class of a message by its full name: of those in the generated files of this folder,
    whose code may be too old to run, and of the modules that they need besides.
    """
    pool, found = descriptor_pool.DescriptorPool(), {}
    for module in known:
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    for path in folder.rglob("*_pb2.py"):
        file = descriptor_pb2.FileDescriptorProto.FromString(_descriptor(path))
        found[file.name] = file

    def add(name: str) -> None:
        if name in found:
            file = found.pop(name)
            for dependency in file.dependency:
                add(dependency)
            pool.Add(file)

    for name in [*found]:
        add(name)
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _descriptor(path: Path) -> bytes:
    """The encoded ``FileDescriptorProto`` in a generated file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.keyword) and node.arg == "serialized_pb":
            if isinstance(node.value, ast.Call):  # ``_b('...')``
                return str(ast.literal_eval(node.value.args[0])).encode("latin-1")
            return bytes(ast.literal_eval(node.value))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "AddSerializedFile":
            return bytes(ast.literal_eval(node.args[0]))
    raise AssertionError(f"{path} has no descriptor")
