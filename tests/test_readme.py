# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What the README shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gym_objstore.cli.app import EXIT_CODES, app
from tests.gym_side import server_side

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_python_example_runs_as_printed():
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", example], check=True, capture_output=True, text=True)
    assert done.stdout == (
        "Trajectory(model_call_ids=('call-1',), token_ids=(11, 12, 13, 21, 22), mask=(0, 0, 0, 1, 1), "
        "log_probs=(0.0, 0.0, 0.0, -0.5, -0.1))\n"
    )


@server_side
def test_the_yaml_is_what_gym_reads():
    from nemo_gym.token_id_capture.config import TokenIdCaptureConfig

    (example,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    config = TokenIdCaptureConfig.model_validate(yaml.safe_load(example))
    assert config.build_sink().settings == config.build_lineage_store().settings
    assert config.build_sink().settings.run_id == "run-7"


def test_every_command_shown_exists():
    shown = set(re.findall(r"gym-objstore (\w+)", README))
    assert shown <= {command.name or command.callback.__name__ for command in app.registered_commands}


@pytest.mark.parametrize(("error", "code"), EXIT_CODES.items())
def test_the_exit_codes_are_those_listed(error, code):
    words = {"notfound": "not found", "invalid": "bad input", "unusable": "unusable here"}
    word = words.get(error.__name__.lower(), error.__name__.lower())
    assert re.search(rf"\b{code}\s+{word}", README)


def test_links_lead_to_files():
    for target in re.findall(r"\]\((?!http)([^)]+)\)", README):
        assert (Path(__file__).parent.parent / target).exists(), target
