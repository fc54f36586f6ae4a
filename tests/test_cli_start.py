# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""How the command starts: what it loads before it knows what to do, and by which names it is found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from gym_objstore.cli.app import ENTRIES

HEAVY = {"asyncio", "boto3", "fsspec", "numpy", "obstore", "pyarrow", "pydantic"}
LOADED = """
import sys
from gym_objstore.cli import main

sys.argv[1:] = {arguments}
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def started(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    found = {**os.environ, "COLUMNS": "200", **environment}
    return subprocess.run(arguments, capture_output=True, text=True, check=True, env=found)


def loaded_by(*arguments: str) -> set[str]:
    """Return the modules that a command line has loaded when it ends."""
    return set(started(sys.executable, "-c", LOADED.format(arguments=arguments)).stderr.split())


def ours(loaded: set[str]) -> set[str]:
    return {name for name in loaded if name.startswith("gym_objstore.")}


def test_the_list_of_commands_loads_no_command_no_client_no_model_and_no_event_loop() -> None:
    loaded = loaded_by("--help")
    assert ours(loaded) == {"gym_objstore.cli", "gym_objstore.cli.app", "gym_objstore.errors"}
    assert loaded & HEAVY == set()


def test_a_command_loads_no_other() -> None:
    assert {name for name in ours(loaded_by("ls", "--help")) if name.startswith("gym_objstore.cli.")} == {
        "gym_objstore.cli.app",
        "gym_objstore.cli.look",
        "gym_objstore.cli.options",
        "gym_objstore.cli.printing",
    }


def test_the_list_has_a_line_for_each_command() -> None:
    said = started(sys.executable, "-m", "gym_objstore", "--help", COLUMNS="80").stdout
    assert [one.name for one in ENTRIES if one.summary not in said] == []


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
