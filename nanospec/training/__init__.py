"""How models are trained: a pair from scratch, learned draft models on a target's hidden states,
and a draft once more on the target's own text. Any of them can be stopped and resumed.
"""
