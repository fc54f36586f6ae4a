# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Fuzz one property of ``test_parsers`` with coverage as the guide: ``python -m tests.security.guided NAME [options]``.

Needs ``pip install atheris``; the options are libFuzzer's, such as ``-max_total_time=600``. What it finds is printed as
the arguments that the property failed for.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["gym_objstore"]):
    from tests.security import test_parsers


def main() -> None:
    """Fuzz the property that the first argument names."""
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, getattr(test_parsers, name).hypothesis.fuzz_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
