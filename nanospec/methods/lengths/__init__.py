"""When to stop a chain: a drafter whose draft length is decided while it drafts (dynamic.py), the
rules that decide it (stopping.py), and drafters that look at the whole batch (by_load.py,
by_survival.py). The draft is a chain as any other, so the core's `verify` judges it.
"""
