"""Many requests at once: the server, what happens to the rows of a batch when requests come and go
(rows.py), drafts of different lengths in one call (ragged.py), and a conversation that is read
once. They go through the core's `one_round`, which takes B texts.
"""
