# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Which kinds of error the source raises, found in the source itself."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gym_objstore import errors
from gym_objstore.reasons import Verdict

ROOT = Path(__file__).resolve().parent.parent
CLASSES = {one.__name__ for one in vars(errors).values() if isinstance(one, type)} - {"ObjstoreError", "Any"}
HANDED_ON = {
    ("Corrupt", "bad_removal"),
    ("Corrupt", "invalid_manifest_row"),
    ("Denied", "refused"),
    ("Invalid", "not_utf8"),
}
"""Kinds that a variable holds where the error is made."""
VERDICTS = {("Corrupt", str(one)) for one in Verdict}
"""What a trainer is told of a receipt, which is a list of its own."""


def raised_kinds() -> set[tuple[str, str]]:
    """Return the classes and kinds of all errors that the packages make, but for those of tests and the demo."""
    found = set(HANDED_ON)
    for top in (ROOT / "gym_objstore", *(ROOT / "adapters").iterdir()):
        for path in sorted(top.rglob("*.py")):
            if not {"testing", "demo"} & set(path.parts):
                found.update(_kinds_in(path))
    return found - VERDICTS


def _kinds_in(path: Path) -> Iterator[tuple[str, str]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func).rpartition(".")[2]
        if name in CLASSES:
            given = {one.arg: one.value for one in call.keywords}
            kind = _value(given["kind"], path) if "kind" in given else name.lower()
        elif name == "_Meaning":
            name, kind = ast.unparse(call.args[0]).rpartition(".")[2], _value(call.args[1], path)
        else:
            continue
        if kind is not None:
            yield name, kind


def _value(node: ast.expr, path: Path) -> str | None:
    """Return what an expression of constants is, none for one of a function's own variables."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    module: dict[str, Any] = vars(_module(path))
    if not names <= {*module, "str"}:
        return None
    return str(eval(ast.unparse(node), module))


def _module(path: Path) -> Any:
    inside = path.relative_to(ROOT)
    parts = inside.parts[1:] if inside.parts[0] == "adapters" else inside.parts
    return importlib.import_module(".".join(parts).removesuffix(".py").removesuffix(".__init__"))
