"""The same prompt twice: the target alone, then speculation. `python demo.py --help` says what can be asked for.

The code is in nanospec/commands/demo.py, so that an installed nanospec has it too: `nanospec demo`.
"""

import sys

from nanospec.commands.launch import quiet

if __name__ == "__main__":
    quiet()
    from nanospec.commands.demo import main
    sys.exit(main())
