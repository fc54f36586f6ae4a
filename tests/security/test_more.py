# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The properties of this folder for four times as many examples, other ones every time."""

from __future__ import annotations

import subprocess
import sys

import pytest

NO_SERVERS = ("-k", "not in_every_store")


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("file", ["test_parsers.py", "test_places.py", "test_command_line.py"])
def test_the_properties_hold_for_many_more_examples(file):
    limits = ["-o", "timeout=600", "-o", "faulthandler_timeout=1210"]
    options = ["-q", "-p", "no:cacheprovider", "--hypothesis-profile=more", *limits, *NO_SERVERS]
    command = [sys.executable, "-m", "pytest", *options, f"tests/security/{file}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5_000:]
