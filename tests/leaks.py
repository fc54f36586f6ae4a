# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""No secret of the run's servers stands in anything that the run wrote: files, output, logs, tracebacks.

Every server is started with a secret of its own that nobody can guess, so each test that uses one is a test of this
too. A leak fails the whole run, and names where it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_LONG = 16
"""A secret of fewer characters may be a word."""


class Leaks:
    """A plugin of the process that begins and ends the run. ``secrets`` says which there are by now."""

    def __init__(self, secrets: Callable[[], Iterable[str]]) -> None:
        self._secrets = secrets
        self.found: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        texts = [report.longreprtext, *(text for _, text in report.sections)]
        if any(self._is_in(text.encode("utf-8", "replace")) for text in texts):
            self.found.append(f"the output of {report.nodeid}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        factory: Any = session.config._tmp_path_factory  # type: ignore[attr-defined]
        self.search(factory.getbasetemp())
        if self.found:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for where in self.found:
            terminalreporter.write_line(f"LEAKED a server's secret: {where}", red=True)

    def search(self, folder: Path) -> None:
        """Look into every file below a folder."""
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink() and self._is_in(path.read_bytes()):
                self.found.append(str(path))

    def _is_in(self, text: bytes) -> bool:
        return any(len(secret) >= _LONG and secret.encode() in text for secret in self._secrets())
