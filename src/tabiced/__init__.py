"""In-context density estimation for tables: one pretrained network, any table, no fitting.

>>> import tabiced
>>> tabiced.ICED().get_params()["false_alarm_rate"]
0.05
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["ICED", "ICEDAugmenter", "__version__", "false_discoveries"]

if TYPE_CHECKING:
    from tabiced.calibration import false_discoveries
    from tabiced.estimator import ICED
    from tabiced.generate import ICEDAugmenter

# Imported at first use: torch takes seconds, and `tabiced --help` should not.
_HOMES = {
    "ICED": "tabiced.estimator",
    "ICEDAugmenter": "tabiced.generate",
    "false_discoveries": "tabiced.calibration",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
