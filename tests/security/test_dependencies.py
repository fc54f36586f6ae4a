# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What is installed with this package, and what of it is loaded: no more than the note on dependencies says."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
(NOTE,) = (ROOT / "docs" / "decisions").glob("*-dependencies.md")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

CORE = {"boto3", "fsspec", "obstore", "orjson", "pydantic", "zstandard"}
BROUGHT = {
    *("botocore", "jmespath", "python-dateutil", "s3transfer", "six", "urllib3"),
    *("annotated-types", "pydantic-core", "typing-extensions", "typing-inspection"),
}
"""What the core dependencies need themselves."""

WORK = """
import asyncio, sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in allowed and not top.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(f"blocked: {name}", name=name)

url, *allowed = sys.argv[1:]
sys.meta_path.insert(0, Nothing())
import gym_objstore
from gym_objstore.records import TokenEntry

async def work():
    sink = gym_objstore.TokenSink(url, "run-1", spill_dir=sys.argv[1].removeprefix("file://") + "-spill")
    source = gym_objstore.TokenSource(url, "run-1")
    await sink.put(TokenEntry(rollout_id="r", model_call_id="c", prompt_token_ids=[1], generation_token_ids=[2],
                              generation_log_probs=[-0.5]))
    frozen = await source.freeze("r")
    assert [one.model_call_id for one in frozen.entries] == ["c"]
    assert await source.drop("r", snapshot_id=frozen.snapshot_id, version=frozen.version)

asyncio.run(work())
print(*sorted({name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)))
"""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed_by(name: str) -> set[str]:
    """Return what a distribution needs here without any extra, all the way down."""
    found = set()
    for one in map(Requirement, requires(name) or ()):
        if one.marker is None or one.marker.evaluate({"extra": ""}):
            found |= {normal(one.name), *needed_by(one.name)}
    return found


def test_the_core_dependencies_are_these_and_each_has_a_reason():
    assert {normal(Requirement(one).name) for one in PROJECT["dependencies"]} == CORE
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (.+?) \| (.+?) \|", NOTE.read_text(encoding="utf-8"), re.MULTILINE)
    reasons = {name: reason for name, reason, _ in rows}
    assert reasons.keys() == CORE
    assert all(len(reason) > 20 for reason in reasons.values())


def test_what_they_bring_is_what_the_note_says():
    brought = set().union(*(needed_by(name) for name in CORE)) - CORE
    assert brought == BROUGHT
    text = NOTE.read_text(encoding="utf-8")
    assert {name for name in BROUGHT if f"`{name}`" in text} == BROUGHT


def test_every_extra_is_in_the_note():
    text = NOTE.read_text(encoding="utf-8")
    for name in PROJECT["optional-dependencies"]:
        assert f"`{name}`" in text, name


def worked(tmp_path, *allowed: str) -> subprocess.CompletedProcess[str]:
    program = f"import sys; sys.path[:0] = {[str(ROOT)]!r}\n{WORK}"
    command = [sys.executable, "-I", "-c", program, f"file://{tmp_path}/store", "gym_objstore", *allowed]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)


def test_a_file_store_needs_three_packages_and_what_one_of_them_brings(tmp_path):
    bring = ("pydantic_core", "annotated_types", "typing_extensions", "typing_inspection", "_cffi_backend")
    done = worked(tmp_path, "orjson", "pydantic", "zstandard", *bring)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert {"gym_objstore", "orjson", "pydantic", "zstandard"} <= loaded
    assert not loaded & {
        "boto3",
        "botocore",
        "fsspec",
        "obstore",
        "numpy",
        "httpx",
        "typer",
        "rich",
        "prometheus_client",
    }


@pytest.mark.parametrize("without", ["orjson", "pydantic", "zstandard"])
def test_each_of_the_three_is_needed(tmp_path, without):
    bring = {"pydantic_core", "annotated_types", "typing_extensions", "typing_inspection", "_cffi_backend"}
    done = worked(tmp_path, *({"orjson", "pydantic", "zstandard", *bring} - {without}))
    assert done.returncode == 1
    assert f"blocked: {without}" in done.stderr
