# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m gym_objstore_nemo_gym``; servers started by it are in ``test_gym_server_captures``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info < (3, 12):
    pytest.skip("nemo-gym's server side needs Python 3.12 or newer", allow_module_level=True)


def in_a_process(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gym_objstore_nemo_gym", *arguments]
    told = {"PYTHONPATH": ":".join(path for path in (*sys.path, str(folder)) if path), "HOME": str(folder)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=told | environment)


def test_the_entry_says_what_it_needs_before_it_runs_anything(tmp_path):
    assert in_a_process(tmp_path).stderr == "usage: python -m gym_objstore_nemo_gym MODULE[:FUNCTION] [ARGUMENT...]\n"
    unset = in_a_process(tmp_path, "json.tool")
    assert (unset.returncode, "GYM_OBJSTORE_URL" in unset.stderr, "Traceback" in unset.stderr) == (1, True, False)
    for name in ("no_such_module", "no_such_package.app:main"):
        missing = in_a_process(tmp_path, name)
        module = name.partition(":")[0]
        assert missing.returncode == 1
        assert missing.stderr == f"gym_objstore_nemo_gym: there is no such module, name={module}\n"


def test_the_entry_calls_a_function_with_the_bucket_in_place(tmp_path):
    (tmp_path / "command.py").write_text(
        "import sys\nfrom nemo_gym import base_responses_api_model as gym\n"
        "def run():\n    print(sys.argv[1:], gym.model_call_capture_dirs_from_config({}))\n    return 7\n"
    )
    where = {"GYM_OBJSTORE_URL": f"file://{tmp_path}/store", "GYM_OBJSTORE_RUN_ID": "run-1"}
    ended = in_a_process(tmp_path, "command:run", "eval", "--limit=1", **where)
    assert (ended.returncode, ended.stdout) == (7, f"['eval', '--limit=1'] ['file://{tmp_path}/store']\n")
