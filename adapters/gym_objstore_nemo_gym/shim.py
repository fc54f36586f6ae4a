# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The one place that knows where nemo-gym keeps things. Symbols are looked up by name, never by version.

nemo-gym 0.7.0 has ``nemo_gym.token_id_capture``; later sources moved it to ``nemo_gym.models.token_capture``.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from gym_objstore.errors import Unusable

_ROOTS = ("nemo_gym.models.token_capture", "nemo_gym.token_id_capture")
_MODEL_SERVER = "nemo_gym.base_responses_api_model"
_COLLECTOR = "nemo_gym.rollout_collection"


@cache
def root() -> str:
    """Return the package that holds Gym's token capture, or raise ``Unusable``."""
    for name in _ROOTS:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if not name.startswith(error.name or "\0"):
                raise
        else:
            return name
    raise Unusable("nemo-gym is not installed here", kind="no_nemo_gym", hint="install nemo-gym, or use gym_objstore")


@cache
def symbol(module: str, name: str) -> Any:
    """Return a symbol of Gym's token capture; raises ``Unusable`` naming what this nemo-gym lacks."""
    found = optional_symbol(module, name)
    if found is None:
        raise Unusable(f"this nemo-gym lacks a symbol, name={root()}.{module}.{name}", kind="no_symbol")
    return found


@cache
def optional_symbol(module: str, name: str) -> Any:
    """Return a symbol that only newer versions have, or None."""
    try:
        return getattr(import_module(f"{root()}.{module}"), name, None)
    except ModuleNotFoundError:
        return None


@cache
def retired_error() -> type[Exception]:
    """Return the class to raise behind a token tombstone: ours, and Gym's too where Gym has one."""
    return _with_theirs("TokenCaptureRetiredError", ("protocols", "store"))


@cache
def rollout_retired_error() -> type[Exception]:
    """Return the class to raise behind a ledger's tombstone: ours, and Gym's too where Gym has one."""
    return _with_theirs("RolloutRetiredError", ("protocols", "staging.records", "lineage", "records", "store"))


def _with_theirs(name: str, modules: tuple[str, ...]) -> type[Exception]:
    from gym_objstore.errors import Retired

    theirs = next((found for module in modules if (found := optional_symbol(module, name))), None)
    return Retired if theirs is None else type(name, (Retired, theirs), {})


def model_server() -> ModuleType:
    """Return the module that holds Gym's model-call capture, or raise ``Unusable``. It loads Gym's server side."""
    try:
        return import_module(_MODEL_SERVER)
    except ImportError as error:
        message = f"nemo-gym's model server cannot be loaded here: {error}"
        raise Unusable(message, kind="no_nemo_gym", hint="it needs nemo-gym 0.7.0 and Python 3.12") from error


def collector() -> ModuleType | None:
    """Return Gym's rollout collector if this process has loaded it, which not every one can."""
    return sys.modules.get(_COLLECTOR)
