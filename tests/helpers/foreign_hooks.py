"""Hooks as others write them."""


def does_nothing():
    pass


def raises():
    raise ValueError("a hook of a test raises this")


def calls_ours():
    import ray_tracing_hooks

    ray_tracing_hooks.setup()
