"""Wrappers that change which tokens a model may write. Each answers as a language model does and stands in the place of
the target, of the draft model or of both; the room adds nothing else to the core.
"""
