"""psycopg 3 as a client: run with PGHOST, PGPORT, PGUSER, PGDATABASE set."""

import activity  # noqa: F401  (each module registers its cases)
import basics  # noqa: F401
import copying  # noqa: F401
import cursors  # noqa: F401
import errors  # noqa: F401
import signals  # noqa: F401
import temporary  # noqa: F401
import transactions  # noqa: F401
import two_phase  # noqa: F401
import types_of_results  # noqa: F401
from findings import run

run()
