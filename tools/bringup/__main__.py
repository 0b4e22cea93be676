"""`python -m tools.bringup`."""

import sys

from tools.bringup.command import main

if __name__ == "__main__":
    sys.exit(main())
