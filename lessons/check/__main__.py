"""`python -m lessons.check` at the top of the clone, or `python PATH/lessons/check` from anywhere."""

import sys
from pathlib import Path

if __name__ == "__main__":
    top = str(Path(__file__).resolve().parent.parent.parent)
    if not __package__:                     # started as a folder, Python looks for modules in that folder: not there
        sys.path.pop(0)
    sys.path.insert(0, top)
    from nanospec.cli.launch import quiet
    quiet()
    from lessons.check.command import main
    sys.exit(main())
