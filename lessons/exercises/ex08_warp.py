"""Exercise 8: temperature and top-k, the same for both models.

difficulty 3 of 5, about 20 minutes, about 8 lines; after the lesson *Report what you sample*
check: python -m lessons.check 8
"""

import torch


def distribution(logits, temperature, top_k):
    """Logits to probabilities: the distribution that is sampled from and also the one that is reported.

    logits: (V,) float64 tensor that may contain -inf.  temperature: >= 0, divides the logits; 0 gives an exact one-hot
    at the greatest.  top_k: int or None; keeps the k most likely tokens, gives the others 0, and rescales to sum 1.
    Returns (V,) float64.

    Worked: logits [0, log 3]: temperature 1 gives [.25, .75], 0.5 gives [.1, .9], 0 gives [0, 1]; top_k = 1, [0, 1].
    """
    raise NotImplementedError
