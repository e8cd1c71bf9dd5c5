"""`python -m nanospec NAME` is `nanospec NAME`."""

import sys

from nanospec.cli.__main__ import main

sys.exit(main())
