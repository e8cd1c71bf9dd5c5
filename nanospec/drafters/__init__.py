"""Who else can draft. The chain of a draft model, `ModelDrafter`, is in speculate.py."""
