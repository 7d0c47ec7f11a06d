"""`python -m tests.chaos` is `./dev chaos`."""

import sys

from tests.chaos.run import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
