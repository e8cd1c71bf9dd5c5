"""The same prompt twice: the target alone, then speculation. `python demo.py --help` says what can
be asked for.

The code is in nanospec/cli/demo.py, so that an installed nanospec has it too: `nanospec demo`.
"""

import sys

from nanospec.cli.launch import quiet

if __name__ == "__main__":
    quiet()
    from nanospec.cli.demo import main
    sys.exit(main())
