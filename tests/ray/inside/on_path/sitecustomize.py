"""Python imports this as it starts, if it is on the path: clusters that a program starts are those of ``lean.py``."""

import importlib.util
import sys

NODE = "ray._private.node"


class Finder:
    """Finds Ray's node where others find it."""

    def find_spec(self, name, path=None, target=None):
        if name != NODE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def execute_and_replace(module):
            execute(module)
            if "lean" in sys.modules:
                return  # the program itself starts its cluster by it
            import lean

            self.replaced = lean.processes(logs=True)  # kept, since its end would put things back
            self.replaced.__enter__()

        spec.loader.exec_module = execute_and_replace
        return spec


# Processes of the cluster have the same path, and start none.
sys.meta_path.insert(0, Finder())
