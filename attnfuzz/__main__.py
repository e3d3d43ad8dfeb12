"""`python -m attnfuzz`: the command line."""

import sys

from attnfuzz.fuzz.cli.app import main

sys.exit(main())
