# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The entry of every process of the demonstration. Each is told a url and a run id, and prints one JSON document."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module

import orjson

from gym_objstore.errors import ObjstoreError


def main() -> None:
    """Play the role of an act that the command line names; what the other act needs is not imported."""
    act, role, url, run_id, *rest = sys.argv[1:]
    play = getattr(import_module(f"gym_objstore.demo.{act}_roles"), role)
    try:
        document = asyncio.run(play(url, run_id, *rest))
    except ObjstoreError as error:
        sys.exit(str(error))
    sys.stdout.buffer.write(orjson.dumps(document))


if __name__ == "__main__":
    main()
