"""Rules beside `verify`: block verification of a chain, which is exact, and two families that are
not the target's distribution and say so: lossy rules and cascades. k-SEQ judges several draft
tokens for one place.
"""
