"""The zoo: bugs that really shipped in public implementations, planted here one at a time, each as the smallest change
to the lines that ship, and each caught by the check that claims it; and others, made up, to try the checks where they
were once blind. Beside them the controls: changes that look like bugs and are exactly lossless, which must pass.

`planted(bug)` plants one, `look(bug, check)` says what a check finds of it, `changed(bug)` is a copy of the file.
A bug whose check is "T3 cache" costs only speed: its text is exact, and no walk of the text can see it.
"""

from nanospec.proof.zoo import batches, chain, drafters, learned, loop, mutants, rules, states, tokenizers, trees
from nanospec.proof.zoo.plant import Bug, Sighting, changed, look, planted

ALL_BUGS = (chain.BUGS + loop.BUGS + trees.BUGS + rules.BUGS + drafters.BUGS + batches.BUGS + learned.BUGS
            + tokenizers.BUGS + states.BUGS + mutants.BUGS)
ALL_CONTROLS = chain.CONTROLS + drafters.CONTROLS
CORE_BUGS = [bug for bug in ALL_BUGS if "." not in bug.file]        # in a file at the top of nanospec/, not in a room
# A control changes the chain, or a drafter that stops. What it must pass is OF_THE_DISTRIBUTION in checks.py; this is
# quicker, and enough for the tests.
ENOUGH = {"speculate": ("T1", "T2 rows", "same_greedy: chain, token"), "methods.lengths.dynamic": ("exact: confidence, token",)}

__all__ = ["ALL_BUGS", "ALL_CONTROLS", "CORE_BUGS", "ENOUGH", "Bug", "Sighting", "changed", "look", "planted"]
