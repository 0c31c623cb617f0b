"""What every test stands on."""

from __future__ import annotations

import os

# One thread a worker: on small batches more threads are slower, and results should not depend on the machine's load.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
