"""The `tabiced` command, also run as `python -m tabiced`."""

import sys

from tabiced._extras import MissingExtraError


def main() -> None:
    """Run the command line, or say in one line which extra it needs."""
    try:
        from tabiced.cli import app
    except MissingExtraError as error:
        sys.exit(f"error: {error}")
    app(prog_name="tabiced")


if __name__ == "__main__":
    main()
