"""`python -m auditlib VERB …`."""

from __future__ import annotations

import sys

from auditlib.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
