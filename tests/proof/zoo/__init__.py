"""All bugs that are planted: those of a chain and of the loop (nanospec/proof/zoo/), those of every other method, and
others, made up to try the checks where they were once blind. Each is caught by the check that claims it.

A bug whose check is "T3 cache" costs only speed: its text is exact, and no walk of the text can see it.
"""

from nanospec.proof.zoo import BUGS, CONTROLS
from tests.proof.zoo import batches, drafters, learned, lessons, mutants, rules, tokenizers, trees

ALL_BUGS = (BUGS + trees.BUGS + rules.BUGS + drafters.BUGS + batches.BUGS + learned.BUGS + tokenizers.BUGS
            + lessons.BUGS + mutants.BUGS)
ALL_CONTROLS = CONTROLS + drafters.CONTROLS
CORE_BUGS = [bug for bug in ALL_BUGS if "." not in bug.file]        # in a file at the top of nanospec/
# A control changes the chain, or a drafter that stops. What it must pass is OF_THE_DISTRIBUTION in checks.py; this is
# quicker, and enough for the tests.
ENOUGH = {"speculate": ("T1", "T2 rows", "same_greedy: chain, token"),
          "methods.lengths.dynamic": ("exact: confidence, token",)}
