"""Isolation and locking as a client sees them: run with PGHOST, PGPORT, PGUSER and PGDATABASE set.

Arguments are parts (`anomalies waits waits_extended rowlocks increments histories pool`); without any, all of them run.
"""

import sys

import anomalies  # noqa: F401  (each module registers its cases)
import histories  # noqa: F401
import increments  # noqa: F401
import pool  # noqa: F401
import rowlocks  # noqa: F401
import waits  # noqa: F401
import workqueue  # noqa: F401
from findings import run

run(sys.argv[1:])
