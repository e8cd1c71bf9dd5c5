"""Exercise 12: write the test that would have caught these bugs.

difficulty 4 of 5, about 30 minutes, about 2 lines; after the lesson *How to test a sampler*
check: python -m lessons.check 12
"""

import torch

from nanospec.proof.walk import distance, walk


def is_exact(sampler, truth):
    """Does this sampler have the distribution `truth`?

    sampler: a function of dice that returns a tuple of tokens and makes every random decision with dice.flip or
    dice.pick.  truth: {tuple of tokens: probability}.  Returns a bool.

    nanospec.proof.walk has walk(sampler) -> (its distribution, number of paths), and distance(found, truth) ->
    (greatest error, total variation). nanospec.dice.Dice([seed]) are real dice, if you prefer to sample. Your test is
    tried on three bugs that shipped and two correct samplers, and then on others. The smallest of their total
    variations from the truth is 1e-5, over all texts together.
    """
    raise NotImplementedError
