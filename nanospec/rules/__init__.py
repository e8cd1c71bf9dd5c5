"""Who decides: which draft tokens are accepted, and which token follows. `verify`, the rule for chains, is in
speculate.py.
"""
