"""A verdict on a sampler that somebody wrote: `from nanospec.proof.judge.verdict import judge`.

verdict.py judges, other_programs.py has samplers of other projects, endpoint.py servers,
sequential.py stops early, and __main__.py is the command for all.
"""
