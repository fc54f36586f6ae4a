# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Every example is in the table of examples, with a command that is right, and is named by a test."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

EXAMPLES = Path(__file__).parent.parent / "examples"
ROWS = re.findall(
    r"^\| \[(.+?)\]\((.+?)\) \| (.+?) \| (.+?) \| `(.+?)` \|$", (EXAMPLES / "README.md").read_text(), re.MULTILINE
)
FILES = {
    path.relative_to(EXAMPLES).as_posix()
    for path in EXAMPLES.rglob("*")
    if path.is_file() and path.name != "README.md" and "__pycache__" not in path.parts
}
PROGRAMS = sorted(name for name in FILES if name.endswith(".py"))
MEANT_ALL = '"kubernetes").glob("*.yaml")'
"""How a test names all files of a folder."""


def test_every_file_is_in_the_table_and_every_row_leads_to_one():
    assert sorted(target for _, target, *_ in ROWS) == sorted(FILES)
    assert all(shown == target for shown, target, *_ in ROWS)


def test_every_file_is_named_by_a_test():
    own = Path(__file__)
    tests = "".join(path.read_text() for path in own.parent.rglob("test_*.py") if path != own)
    assert MEANT_ALL in tests
    assert [name for name in FILES if Path(name).name not in tests and not name.startswith("kubernetes/")] == []


@pytest.mark.parametrize(("name", "command"), [(target, command) for _, target, _, _, command in ROWS])
def test_the_command_is_also_in_the_file_or_names_it(name, command):
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    assert f"examples/{name}" in command or command in text


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_says_what_it_is_and_how_to_run_it(name):
    said = ast.get_docstring(ast.parse((EXAMPLES / name).read_text(encoding="utf-8")))
    assert f"python examples/{name}" in said


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in {"train_torch.py", "ray_job.py"}])
def test_a_program_takes_the_options_that_the_table_gives_it(name):
    """torch and Ray are not at hand here; their programs are run where they are."""
    (command,) = (command for _, target, _, _, command in ROWS if target == name)
    shown = {word for word in shlex.split(command) if word.startswith("--")}
    helped = subprocess.run(
        [sys.executable, str(EXAMPLES / name), "--help"], check=True, capture_output=True, text=True
    ).stdout
    assert shown <= set(re.findall(r"--[\w-]+", helped))


@pytest.mark.parametrize("name", sorted(FILES))
def test_no_example_names_a_machine(name):
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    assert not re.search(r"/(work|home|root|Users)/", text)
    assert text.startswith(("# SPDX-FileCopyrightText", "#!/bin/sh\n# SPDX-FileCopyrightText"))
    if name.endswith(".yaml"):
        assert list(yaml.safe_load_all(text))
