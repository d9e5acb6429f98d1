"""The `tabiced` command, also run as `python -m tabiced`."""

import os
import sys

from tabiced._extras import MissingExtraError


def main() -> None:
    """Run the command line, or say in one line which extra it needs."""
    # Threads of GNU OpenMP wait for each other by spinning, by default for long. Where another
    # program has one of their cores that takes most of the time. To be set before torch loads.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    try:
        from tabiced.cli import app
    except MissingExtraError as error:
        sys.exit(f"error: {error}")
    app(prog_name="tabiced")


if __name__ == "__main__":
    main()
