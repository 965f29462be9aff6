"""RLlib: the iterations of its algorithms and their phases, and what its env runners and learners run."""
