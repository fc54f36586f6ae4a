# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Runs an entry module of Gym, or a command, with captures into the bucket in each of its processes.

``python -m gym_objstore_nemo_gym MODULE [ARGUMENT...]`` runs a module as ``python -m`` does, and ``MODULE:FUNCTION``
calls a function as an installed command does: Gym's own is ``nemo_gym.cli.main:main``. The environment says where,
see ``captures.activate``. A worker process that Python spawns runs the main module of its parent first: this one,
which activates. The servers that Gym's command starts are no such workers.
"""

from __future__ import annotations

import importlib
import importlib.util
import runpy
import sys
from collections.abc import Sequence

from gym_objstore.errors import ObjstoreError
from gym_objstore_nemo_gym.captures import activate

_USAGE = "usage: python -m gym_objstore_nemo_gym MODULE[:FUNCTION] [ARGUMENT...]"
_SPAWNED = "__mp_main__"


def main(arguments: Sequence[str]) -> None:
    """Run the module or function named first with the arguments behind it."""
    if not arguments or arguments[0].startswith("-"):
        raise SystemExit(_USAGE)
    target, *rest = arguments
    module, _, function = target.partition(":")
    path = _path_of(module)
    try:
        activate()
    except ObjstoreError as error:
        raise SystemExit(f"gym_objstore_nemo_gym: {error}") from error
    sys.argv = [path, *rest]
    sys.modules["__main__"].__spec__ = importlib.util.find_spec(__name__)
    if function:
        raise SystemExit(getattr(importlib.import_module(module), function)())
    runpy.run_module(module, run_name="__main__")


def _path_of(module: str) -> str:
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise SystemExit(f"gym_objstore_nemo_gym: there is no such module, name={module}")
    return found.origin or module


if __name__ == _SPAWNED:
    activate()
