"""What answers as a language model and stands in the place of the target, of the draft model or of
both: a model under a grammar (grammar.py), one with penalties (penalties.py), and a draft model
that was made for another tokenizer (other_tokenizer.py). Two drafters stand beside them, because
they share their tables: string_match.py for another tokenizer, grammar_drafter.py for a grammar.
The core has to know of none of them.
"""
