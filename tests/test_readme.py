# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What the README shows is what happens; ``test_docs`` has what is true of every page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

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
@pytest.mark.usefixtures("gym_given_back")
def test_the_yaml_is_what_gym_reads():
    from nemo_gym.token_id_capture.config import TokenIdCaptureConfig

    (example,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    config = TokenIdCaptureConfig.model_validate(yaml.safe_load(example))
    assert config.build_sink().settings == config.build_lineage_store().settings
    assert config.build_sink().settings.run_id == "run-7"
