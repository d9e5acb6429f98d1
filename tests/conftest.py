"""Settings of the whole suite."""

import os

# Many small operations run fastest on one thread, and far faster on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
