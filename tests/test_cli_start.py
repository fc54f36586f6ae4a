# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""How the command starts: what it loads before it knows what to do, and by which names it is found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

HEAVY = ("asyncio", "boto3", "fsspec", "numpy", "obstore", "pyarrow", "pydantic", "rich")


def started(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    found = {**os.environ, "COLUMNS": "200", **environment}
    return subprocess.run(arguments, capture_output=True, text=True, check=True, env=found)


def test_the_command_tree_loads_no_client_no_model_and_no_event_loop() -> None:
    program = f"import sys, gym_objstore.cli.app; print(*sorted(set(sys.modules) & {set(HEAVY)!r}))"
    assert started(sys.executable, "-c", program).stdout == "\n"


def test_the_package_is_the_command() -> None:
    said = started(sys.executable, "-m", "gym_objstore", "--help").stdout
    assert "Usage: gym-objstore [OPTIONS] COMMAND [ARGS]..." in said
    assert "--show-completion" in said


def test_the_command_prints_the_completion_of_the_shell_it_runs_in() -> None:
    bash = shutil.which("bash")
    assert bash, "bash is what make and CI run in"
    said = started(bash, "-c", f"{sys.executable} -m gym_objstore --show-completion; exit $?").stdout
    assert "complete -o default -F _gym_objstore_completion gym-objstore" in said


def test_the_shell_completes_commands_and_their_options() -> None:
    def completions(words: str) -> set[str]:
        asked = {
            "_GYM_OBJSTORE_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        }
        return set(started(sys.executable, "-m", "gym_objstore", **asked).stdout.split())

    assert completions("gym-objstore re") == {"retire"}
    assert {"--url", "--run-id"} <= completions("gym-objstore ls --")
