"""One HTML file that tells what is unusual in a table: no other file, no network, no tracking."""

from tabiced.report.page import render_report, write_report

__all__ = ["render_report", "write_report"]
