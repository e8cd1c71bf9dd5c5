"""Who else can guess. The chain of a draft model is in speculate.py; here is what guesses in other shapes."""
