"""Faster versions of work that Serve does at every request, which compensate for some of the cost of tracing.

Like :mod:`ray_tracing_hooks._ray.shortcuts`, each one is skipped if this Ray has other code:

- A request gets three random ids (Ray 2.60 ``serve/_private/utils.py``, ``generate_request_id``). Serve draws random
  bits and creates a ``uuid.UUID`` only for its text.
- A replica fetches each HTTP request from its proxy, an actor that it looks up by name, and builds a handle with all
  methods (Ray 2.60 ``serve/_private/common.py``, ``StreamingHTTPRequest.receive_asgi_messages``). The last handle can
  be reused as long as this process sees its actor as alive, since a look-up by name would find the same actor.
- Each of a dozen metrics of a request checks its tags one by one (Ray 2.60 ``util/metrics.py``,
  ``Metric._validate_tags``).
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from ray_tracing_hooks._exceptions import hide_frame
from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._ray.shortcuts import names_in

MODULE = "ray.serve._private.utils"

_GENERATES = {"str", "uuid", "UUID", "random", "getrandbits"}
"""The names in the code of ``generate_request_id``, by which a known version is recognized."""

_RECEIVES = {"_receive_asgi_messages", "_proxy_actor_name", "ray", "get_actor", "SERVE_NAMESPACE"}
_RECEIVES |= {"_cached_proxy_actor", "receive_asgi_messages", "remote"}
"""The names in the code of ``receive_asgi_messages``, by which a known version is recognized."""

_VALIDATES = {"_tag_keys", "append", "ValueError", "join"}
"""The names in the code of ``_validate_tags``, by which a known version is recognized."""

_MOST_HANDLES = 1000
"""Bounds the cache. There is one proxy per node."""

_VERSION_4 = (0x8000 << 48) | (4 << 76)
_NOT_VERSION = ~((0xC000 << 48) | (0xF000 << 64))
"""The bits of a UUID for its variant (RFC 4122) and its version."""


def patch(patches: Patches) -> bool:
    """Apply every shortcut that fits this Ray. There need not be any."""
    from ray.serve._private import utils  # noqa: PLC0415

    functions = [each for each in vars(utils).values() if isinstance(each, FunctionType)]
    making = [each.__name__ for each in functions if "UUID" in each.__code__.co_names]
    if making == ["generate_request_id"] and {*names_in(utils, "generate_request_id")} == _GENERATES:
        patches.wrap(utils, "uuid", Uuid)
    _keep_handles(patches)
    from ray.util.metrics import Metric  # noqa: PLC0415  last, so that the others are applied even without it

    if {*names_in(Metric, "_validate_tags")} == _VALIDATES:
        patches.wrap(Metric, "_validate_tags", _validate_tags)
    return True


def _validate_tags(original: Callable[..., None]) -> Callable[..., None]:
    def validate_tags(self: Any, final_tags: dict[str, str]) -> None:
        if all(map(final_tags.__contains__, self._tag_keys)):
            return
        try:
            original(self, final_tags)  # it raises with the missing ones
        except BaseException as error:
            hide_frame(error)
            raise

    return validate_tags


def _keep_handles(patches: Patches) -> None:
    from ray.actor import ActorHandle  # noqa: PLC0415
    from ray.core.generated import gcs_pb2  # noqa: PLC0415
    from ray.serve._private import common  # noqa: PLC0415

    request = getattr(common, "StreamingHTTPRequest", None)
    receive = vars(request).get("receive_asgi_messages") if request is not None else None
    if not isinstance(receive, property) or not hasattr(ActorHandle, "_get_local_state"):
        return
    if {*names_in(receive, "fget")} == _RECEIVES:
        alive = gcs_pb2.ActorTableData.ALIVE
        patches.wrap(request, "receive_asgi_messages", lambda original: Receiving(original, alive))


class Receiving(property):
    """``StreamingHTTPRequest.receive_asgi_messages`` with cached handles of proxies.

    ``alive`` is Ray's number for the state ALIVE of an actor.
    """

    def __init__(self, original: property, alive: int) -> None:
        handles: dict[str, Any] = {}
        ask: Any = original.fget

        def receive_asgi_messages(request: Any) -> Any:
            known = vars(request)
            if known["_receive_asgi_messages"] is not None:
                return known["_receive_asgi_messages"]
            name = known["_proxy_actor_name"]
            handle = handles.get(name)
            try:
                if handle is None or handle._get_local_state() != alive:  # noqa: SLF001  there is no public API
                    receive = ask(request)
                    if len(handles) >= _MOST_HANDLES:
                        handles.clear()
                    handles[name] = known["_cached_proxy_actor"]
                    return receive
            except BaseException as error:
                hide_frame(error)
                raise
            known["_cached_proxy_actor"] = handle
            receive = known["_receive_asgi_messages"] = handle.receive_asgi_messages.remote
            return receive

        super().__init__(receive_asgi_messages)


class Uuid:
    """Stands in for the module ``uuid`` for callers that only need the text of a UUID made of random bits."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def UUID(self, *args: Any, int: Any = None, version: Any = None, **options: Any) -> Any:  # noqa: A002, N802  the signature of uuid.UUID
        if version != 4 or int is None or int >> 128 or args or options:
            return self._module.UUID(*args, int=int, version=version, **options)
        text = f"{int & _NOT_VERSION | _VERSION_4:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
