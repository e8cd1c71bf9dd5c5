"""When to stop a chain: a drafter whose draft length is decided while it drafts (dynamic.py), and the rules that decide
it (stopping.py). The draft is a chain as any other, so the core's `verify` judges it.
"""
