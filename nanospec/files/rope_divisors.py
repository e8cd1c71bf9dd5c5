"""Llama 3's scaling of rotary positions, found again from what each frequency is divided by.

A config.json says the scaling in four numbers, and llama.cpp writes out what they come to, in
rope_freqs.weight.
"""

import math

LOW, HIGH = 1.0, 4.0        # Llama 3's, where the divisors leave open which they were


def llama3_of(divisors: list[float], theta: float, head_size: int) -> tuple[float, ...] | None:
    """The Config.rope_llama3 by which the frequencies are divided by these numbers, () if by 1;
    None if there is none.

    With the greatest of them as `factor`, the share of full speed that a pair keeps is a straight
    line in its frequency, cut off at 0 and 1. Two pairs in between say which line.
    """
    if len(divisors) != head_size // 2 or not all(1 <= divisor < math.inf for divisor in divisors):
        return None
    factor = max(divisors)
    if factor == 1:
        return ()
    turns = [theta ** (-2 * i / head_size) / (2 * math.pi) for i in range(len(divisors))]
    kept = [(1 / divisor - 1 / factor) / (1 - 1 / factor) for divisor in divisors]
    between = [(turn, share) for turn, share in zip(turns, kept) if 1e-6 < share < 1 - 1e-6]
    below = LOW / (HIGH - LOW)
    if len(between) > 1:
        (fast, more), (slow, less) = between[0], between[-1]
        below = slow * (more - less) / (fast - slow) - less
    full = [(turn, share) for turn, share in zip(turns, kept) if share >= 1 - 1e-6]
    turn, share = (between or full[-1:] or [(turns[0], 0.0)])[-1]
    if below <= 0:
        return None
    high = LOW + LOW / below
    context = (LOW + share * (high - LOW)) / turn
    line = [min(max((context * turn - LOW) / (high - LOW), 0.0), 1.0) for turn in turns]
    fits = all(abs(divisor * (share + (1 - share) / factor) - 1) < 1e-4
               for divisor, share in zip(divisors, line))
    return (factor, LOW, high, context) if fits else None
