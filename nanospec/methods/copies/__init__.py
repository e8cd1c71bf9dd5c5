"""Drafts that cost no model: tokens copied from the text (lookup, suffix), from the target's own
earlier guesses (lookahead), or copied where that is expected to pay and drafted by a model
elsewhere (hybrid). The room adds drafters to the core and nothing else.
"""
