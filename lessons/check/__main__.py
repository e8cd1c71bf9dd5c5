"""`python -m lessons.check` at the top of the clone, or `python PATH/lessons/check` from anywhere."""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    top = str(Path(__file__).resolve().parent.parent.parent)
    if not __package__:                     # started as a folder, Python looks for modules in that folder: not there
        sys.path.pop(0)
    sys.path.insert(0, top)
    from nanospec.cli.launch import quiet, written_to_the_end
    quiet()
    from lessons.check.command import main
    status = main()
    written_to_the_end()
    os._exit(status)                        # at once: threads of a learner's file, and what it left for the end
