"""`python -m attnfuzz`: the command line."""

import sys

from attnfuzz.fuzz.cli import main

sys.exit(main())
