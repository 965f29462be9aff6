"""What asks a running cluster, or changes it, for the commands ``doctor``, ``status``, ``collect``, ``enable``,
``disable``, ``configure`` and ``config``.

``head`` finds the cluster, and ``cluster`` connects to it and runs functions on its nodes. ``probe`` is what runs
there first, whatever is installed; ``examination``, ``reach`` and ``spools`` are what it then calls of that node's
own package. ``checks`` are functions from what was found to findings, and ``doctor`` puts the parts together.
"""
