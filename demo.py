"""The same prompt twice: the target alone, then speculation. `python demo.py --help` says what can be asked for.

The code is in nanospec/commands/demo.py, so that an installed nanospec has it too: `nanospec demo`.
"""

import sys

from nanospec.commands.demo import main

if __name__ == "__main__":
    sys.exit(main())
