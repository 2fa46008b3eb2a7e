"""`python -m wids.cli` is the command `widsindex`."""

import sys

from wids.cli.command_line import main

sys.exit(main())
