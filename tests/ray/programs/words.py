"""A service of gRPC whose messages are protobuf's own, so that nothing has to be generated."""

import grpc
from google.protobuf.wrappers_pb2 import StringValue

SERVICE = "test.Words"

_ONE_TO_ONE, _ONE_TO_MANY, _MANY_TO_ONE, _MANY_TO_MANY = "unary_unary", "unary_stream", "stream_unary", "stream_stream"
METHODS = {
    "say": _ONE_TO_ONE,
    "count": _ONE_TO_MANY,
    "join": _MANY_TO_ONE,
    "echo": _MANY_TO_MANY,
    "refuse": _ONE_TO_ONE,
    "find": _ONE_TO_ONE,
    "fail": _ONE_TO_ONE,
    "wait": _ONE_TO_ONE,
}


def add_to_server(servicer, server):
    """What Serve's ``grpc_servicer_functions`` name."""
    handlers = {
        name: getattr(grpc, f"{kind}_rpc_method_handler")(
            getattr(servicer, name),
            request_deserializer=StringValue.FromString,
            response_serializer=StringValue.SerializeToString,
        )
        for name, kind in METHODS.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))


def stub(channel, name):
    """A method of the service, for a client."""
    return getattr(channel, METHODS[name])(
        f"/{SERVICE}/{name}",
        request_serializer=StringValue.SerializeToString,
        response_deserializer=StringValue.FromString,
    )
