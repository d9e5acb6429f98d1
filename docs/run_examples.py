"""Run the Python examples of the tutorials while the site is built, and show what they print."""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any

EXECUTED = ("quickstart.md", "tutorials/")
BLOCK = re.compile(r"```python\n(.*?)```\n", re.DOTALL)


def run_examples(markdown: str, name: str) -> str:
    """Run all Python blocks of a page, in one namespace, and put their output below each."""
    namespace: dict[str, Any] = {"__name__": name}

    def run(block: re.Match[str]) -> str:
        printed = io.StringIO()
        line = markdown.count("\n", 0, block.start()) + 1
        source = "\n" * line + block[1]  # so that errors name the line of the page
        with contextlib.redirect_stdout(printed):
            exec(compile(source, name, "exec"), namespace)
        text = printed.getvalue().rstrip()
        return block[0] + (f"\n```text\n{text}\n```\n" if text else "")

    return BLOCK.sub(run, markdown)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Let mkdocs show every tutorial with its output."""
    path = page.file.src_uri
    return run_examples(markdown, path) if path.startswith(EXECUTED) else markdown
