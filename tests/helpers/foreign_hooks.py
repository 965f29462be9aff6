"""Hooks as others write them."""


def does_nothing() -> None:
    return


def raises() -> None:
    raise ValueError("a hook of a test raises this")


def calls_ours() -> None:
    import ray_tracing_hooks

    ray_tracing_hooks.setup()
