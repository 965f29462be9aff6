"""Python imports this as it starts, if it is on the path: to us, Ray has not the place that ``RTH_MISSING`` names."""

import os

from ray_tracing_hooks._patching import Patches

wrap = Patches.wrap


def wrap_what_is_there(self, owner, name, make):
    if f"{owner.__name__}.{name}" == os.environ.get("RTH_MISSING"):
        return False
    return wrap(self, owner, name, make)


Patches.wrap = wrap_what_is_there
