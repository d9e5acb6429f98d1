"""Imports of optional packages, with an error that names what to install."""

from collections.abc import Iterator
from contextlib import contextmanager


class MissingExtraError(ImportError):
    """A package of one of tabiced's optional extras is not installed."""


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Guard the imports of one optional extra.

    >>> with extra("plot"):
    ...     import matplotlib
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "tabiced":  # a module of ours that does not exist is a defect, not an extra
            raise
        raise MissingExtraError(
            f"this needs {package!r}, which is not installed: pip install 'tabiced[{name}]'",
            name=error.name,
        ) from error
