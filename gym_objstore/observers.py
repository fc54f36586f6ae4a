# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The ready hooks by name, for processes whose code is not ours: ``GYM_OBJSTORE_OBSERVE=logging,prometheus,otel``.

Components install what the variable names when the first one is made, once in a process and its forks.
"""

from __future__ import annotations

import os
import threading
from importlib import import_module

from gym_objstore.errors import Invalid
from gym_objstore.observing import observe

VARIABLE = "GYM_OBJSTORE_OBSERVE"

_HOOKS = {
    "logging": "observing_logging:LogLines",
    "otel": "observing_otel:OtelTelemetry",
    "prometheus": "observing_prometheus:PrometheusMetrics",
}
_installed: set[str] = set()
_installing = threading.Lock()


def install_observers(names: str | None = None) -> None:
    """Install hooks by their names, separated by commas; those of the environment variable where none are given.

    Repeating: installs none twice. Raises: ``Invalid`` for an unknown name, ``Unusable`` where an extra is missing.
    """
    text = os.environ.get(VARIABLE, "") if names is None else names
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := sorted(set(wanted) - set(_HOOKS)):
        raise Invalid(
            f"unknown observer, name={', '.join(unknown)}",
            kind="bad_option",
            hint=f"{VARIABLE} takes {', '.join(_HOOKS)}, separated by commas",
        )
    for name in wanted:
        with _installing:
            if name not in _installed:
                module, _, kind = _HOOKS[name].partition(":")
                observe(getattr(import_module(f"gym_objstore.{module}"), kind)())
                _installed.add(name)
