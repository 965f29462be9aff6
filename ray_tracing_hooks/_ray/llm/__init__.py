"""LLM engines, in Ray Serve LLM, in jobs of ``ray.data.llm``, and in any task or actor of the program.

A generation is recorded where the engine's front end accounts for it, so that it is the same whoever asked for it.
Nothing of an engine is imported, and nothing runs for each token.
"""
