"""The zoo: bugs, many of which shipped in public implementations, planted here one at a time, each
as the smallest change to the lines that ship. Here are those of a chain and of the loop, which
lessons show and the judge names; those of the other methods, and the checks that catch them all,
are in tests/proof/. Beside them the controls: changes that look like bugs and are exactly lossless.

`planted(bug)` plants one, `changed(bug)` is a copy of the file.
"""

from nanospec.proof.zoo.chain import BUGS, CONTROLS
from nanospec.proof.zoo.plant import Bug, changed, planted

__all__ = ["BUGS", "CONTROLS", "Bug", "changed", "planted"]
