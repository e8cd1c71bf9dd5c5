"""Wrappers that change which tokens a model may write. A wrapper answers as a language model does, so it stands where
that model stood: a draft model that was made for another tokenizer (other_tokenizer.py) drafts for this target. The
room adds nothing that the core has to know of.
"""
