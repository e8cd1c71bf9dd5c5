"""How models are trained: losses, batches, and a state that can be put aside. train_tiny.py is the script."""
