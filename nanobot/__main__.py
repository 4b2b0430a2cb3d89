"""`python -P -m nanobot` is the same as `nanobot`. Without `-P` Python looks in the current folder
first, so that in a folder of somebody else's it may find another nanobot."""

from __future__ import annotations

import sys

if not sys.flags.safe_path:
    del sys.path[0]

from nanobot.cli.main import main

sys.exit(main())
