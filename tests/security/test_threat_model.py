# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The threat model names every identity, and only tests and files that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.identities import CONTROL, EXPIRY, IDENTITIES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")


def functions_in(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {one.name for one in ast.walk(tree) if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))}


def test_every_test_it_names_exists():
    named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", TEXT)
    assert len(named) > 40
    for file, function in named:
        assert not function or function in functions_in(ROOT / "tests" / file), f"{file}::{function}"
        assert (ROOT / "tests" / file).is_file()


def test_every_file_it_links_to_exists():
    for target in re.findall(r"\]\((?!http)([^)#]*)(?:#[\w-]+)?\)", TEXT):
        assert (ROOT / "docs" / target).exists(), target


def test_every_identity_is_in_it():
    for one in (*IDENTITIES, CONTROL, EXPIRY):
        assert f"| `{one}`" in TEXT, one
