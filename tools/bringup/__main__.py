"""`python -m tools.bringup`: the entry; the command line is `command`."""

import sys

from tools.bringup.command import main

if __name__ == "__main__":
    sys.exit(main())
