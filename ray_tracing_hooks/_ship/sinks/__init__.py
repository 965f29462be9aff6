"""The sinks, each a module of its own. ``registry`` finds one by its name and imports no other."""
