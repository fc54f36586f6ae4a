# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The process-wide default sink, source and lineage store, for programs that work without nemo-gym.

The owner of a process installs them once; nothing else in this package reads or sets them.
"""

from __future__ import annotations

from typing import Any

_installed: dict[str, Any] = {}

_METHODS = {
    "sink": ("put", "mark_incomplete", "close"),
    "source": ("freeze", "drop", "close"),
    "lineage store": ("resolve", "is_process_shared", "close"),
}


def install_token_sink(sink: Any) -> None:
    """Set the default sink, or clear it with None. Raises ``TypeError`` if it lacks a required method."""
    _install("sink", sink)


def install_token_source(source: Any) -> None:
    """Set the default source, or clear it with None. Raises ``TypeError`` if it lacks a required method."""
    _install("source", source)


def install_lineage_store(store: Any) -> None:
    """Set the default lineage store, or clear it with None. Raises ``TypeError`` if it lacks a required method."""
    _install("lineage store", store)


def installed_token_sink() -> Any:
    """Return the default sink or None."""
    return _installed.get("sink")


def installed_token_source() -> Any:
    """Return the default source or None."""
    return _installed.get("source")


def installed_lineage_store() -> Any:
    """Return the default lineage store or None."""
    return _installed.get("lineage store")


def _install(role: str, component: Any) -> None:
    if component is not None:
        absent = [name for name in _METHODS[role] if not callable(getattr(component, name, None))]
        if absent:
            msg = f"the installed {role} lacks required methods, absent={', '.join(absent)}"
            raise TypeError(msg)
    _installed[role] = component
