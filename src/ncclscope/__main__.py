"""`python -m ncclscope` is `ncclscope`."""

import sys

from ncclscope.cli import main

sys.exit(main())
