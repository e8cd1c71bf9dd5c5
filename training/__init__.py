"""What train_tiny.py is made of: a pair from scratch, learned draft models on a target's hidden
states, and a draft once more on the target's own text. Any training can be stopped and resumed. An
installation runs models and has nothing of this.
"""
