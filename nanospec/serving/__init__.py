"""Many requests at once: the server, what happens to the rows of a batch when requests come and go
(rows.py), drafts of different lengths in one call (ragged.py), and a conversation whose earlier
turns are not read again (conversation.py). They go through the core's `one_round`, which takes B
texts.
"""
