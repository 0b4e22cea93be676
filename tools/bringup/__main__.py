"""`hcq bringup`: the entry point. Not here: the command line (`command`)."""

import sys

from tools.bringup.command import main

if __name__ == "__main__":
    sys.exit(main())
