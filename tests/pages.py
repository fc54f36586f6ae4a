# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The documents as a test reads them: pages, their blocks of code, their links, and what runs a block."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.example_run import path_with_our_command, search_path

ROOT = Path(__file__).resolve().parent.parent
_OF_THE_SITE = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
PAGES = ("README.md", "CHANGELOG.md", "terraform/README.md", *_OF_THE_SITE)

_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]+) -->\n)?^```(?P<kind>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_HARMLESS = {"gym-objstore", "export", "printf", "cat", "python"}
_SECONDS = 90


class Block(NamedTuple):
    """A block of code: ``line`` is where it stands, ``reason`` why nobody runs it, ``follows`` another one at once."""

    kind: str
    code: str
    line: int
    reason: str | None
    follows: bool


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks_of(page: str) -> Iterator[Block]:
    text, end = text_of(page), -1
    for found in _BLOCK.finditer(text):
        follows = end >= 0 and not text[end : found.start()].strip()
        yield Block(found["kind"], found["code"], text.count("\n", 0, found.start()) + 1, found["reason"], follows)
        end = found.end()


def prose_of(page: str) -> str:
    """Return a page without its blocks of code."""
    return _BLOCK.sub("", text_of(page))


def links_of(page: str) -> list[str]:
    return [link for link in _LINK.findall(prose_of(page)) if not link.startswith(("http://", "https://"))]


def anchors_of(page: str) -> set[str]:
    """Return what a link may name in a page, as GitHub and mkdocs both make it of a heading."""
    plain = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in _HEADING.findall(prose_of(page)))
    return {re.sub(r"\s+", "-", heading) for heading in plain}


def is_harmless(block: Block) -> bool:
    """Say whether a shell block only calls what a test may call."""
    lines = re.sub(r"\\\n", " ", block.code).splitlines()
    return {line.split()[0] for line in lines if line.strip() and not line.startswith("#")} <= _HARMLESS


def run_block(block: Block, folder: Path) -> str:
    """Run a block in ``folder`` as its reader would, against a store in that folder, and return what it printed."""
    command = [sys.executable, "-c", block.code] if block.kind == "python" else ["sh", "-euc", block.code]
    told = {
        "GYM_OBJSTORE_URL": f"file://{folder}/store",
        "GYM_OBJSTORE_RUN_ID": "run-7",
        "GYM_OBJSTORE_SPILL_DIR": str(folder / "spill"),
        "PATH": path_with_our_command(folder),
        "PYTHONPATH": search_path(),
        "COLUMNS": "120",
    }
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **told}, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    assert done.returncode == 0, f"line {block.line}\n{done.stdout}{done.stderr}"
    return done.stdout


def is_shown_as(shown: str, printed: str) -> bool:
    """Say whether a block of output is what was printed; ``...`` stands for anything within a line."""
    wanted, lines = shown.splitlines(), [line.rstrip() for line in printed.rstrip().splitlines()]
    patterns = [".*".join(map(re.escape, line.split("..."))) for line in wanted]
    return len(wanted) == len(lines) and all(map(re.fullmatch, patterns, lines))
