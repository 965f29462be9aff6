"""Python imports this as it starts, if it is on the path: to us, Ray has not the place that ``RTH_MISSING`` names."""

import os

from ray_tracing_hooks._safety.patching import Patches


def where_it_is(wrap):
    def wrap_what_is_there(self, owner, name, make):
        if f"{owner.__name__}.{name}" == os.environ.get("RTH_MISSING"):
            return False
        return wrap(self, owner, name, make)

    return wrap_what_is_there


Patches.wrap, Patches.wrap_within = where_it_is(Patches.wrap), where_it_is(Patches.wrap_within)
