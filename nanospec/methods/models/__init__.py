"""Wrappers that change which tokens a model may write. Each answers as a language model does and stands in the place of
the target, of the draft model or of both: under a grammar (grammar.py), or as a draft model that was made for another
tokenizer (other_tokenizer.py, by_string.py). The room adds nothing that the core has to know of.
"""
