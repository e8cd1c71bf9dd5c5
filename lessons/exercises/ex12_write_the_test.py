"""Exercise 12: write the test that everybody should have had.

difficulty 4 of 5, about 30 minutes, about 2 lines; after the lesson *How to test a sampler*
check: python -m lessons.check 12
"""

import torch

from nanospec.proof.walk import distance, walk


def is_exact(sampler, truth):
    """Does this sampler have the distribution `truth`?

    sampler: a function of dice that returns a tuple of tokens and leaves all chance to dice.flip and dice.pick.
    truth: {tuple of tokens: probability}.  Returns a bool.

    nanospec.proof.walk has walk(sampler) -> (its distribution, number of paths), and distance(found, truth) ->
    (greatest error, total variation). nanospec.dice.Dice([seed]) are real dice, should you prefer to sample. You will
    be given three bugs that shipped and two honest samplers; then others, of which the smallest is 1e-5 off.
    """
    raise NotImplementedError
