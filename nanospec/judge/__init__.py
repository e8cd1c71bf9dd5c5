"""A verdict on a sampler that somebody wrote: `from nanospec.judge.verdict import judge`.

verdict.py judges, other_programs.py has samplers of other projects, and sequential.py stops early.
Of servers: endpoint.py asks them, replies.py reads what they answer, places.py has what is known of
each token, witnesses.py judges it, and doubts.py and defaults.py look for another cause before they
are called wrong. Of two greedy texts that differ, texts.py says why: rounding.py measures
what rounding moves, kinds.py names the bug, and given.py reads files and asks servers. The command
is cli/judge.py.
"""
