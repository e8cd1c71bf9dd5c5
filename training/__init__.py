"""Draft models that read a target's hidden states, and how they are trained: for our pair, which
train_tiny.py makes by itself, or for a target of others.

    __main__.py                 the command
    learning.py                 on texts as they come, and on what the target writes meanwhile
    own_texts.py, kept.py       for a target of others: on conversations that it writes itself, made
                                once and read from disk with its hidden states
"""
