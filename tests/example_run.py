# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a program of examples/ as its reader does: as it stands, in a process, told by the environment where to go."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.gym_server import as_deployed

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"

_INTERPRETERS = {".py": sys.executable, ".sh": "sh"}
_SECONDS = 110


def environment_of(place: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables by which a process finds a place without arguments."""
    kwargs, secrets = as_deployed(place)
    return secrets | {f"GYM_OBJSTORE_{name.upper()}": str(value) for name, value in kwargs.items()}


def example(
    name: str, *arguments: str, environment: Mapping[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run an example in ``folder`` and return what it printed, whatever its exit code."""
    command = [_INTERPRETERS[Path(name).suffix], str(EXAMPLES / name), *arguments]
    found = {**os.environ, **environment, "PATH": path_with_our_command(folder), "PYTHONPATH": search_path()}
    return subprocess.run(command, cwd=folder, env=found, capture_output=True, text=True, check=False, timeout=_SECONDS)


def printed(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the lines of an example that succeeded."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def search_path() -> str:
    return os.pathsep.join([str(ROOT), str(ROOT / "adapters"), os.environ.get("PYTHONPATH", "")])


def path_with_our_command(folder: Path) -> str:
    """Return a search path on which ``gym-objstore`` is this interpreter's, installed or not."""
    command = folder / "bin" / "gym-objstore"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gym_objstore "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    return os.pathsep.join([str(command.parent), os.environ["PATH"]])
