"""What answers as a language model and stands in the place of the target, of the draft model or of
both: a model under a grammar (grammar.py), and a draft model that was made for another tokenizer
(other_tokenizer.py). by_string.py, the other way to draft with such a model, is a drafter. The core
has to know of none of them.
"""
