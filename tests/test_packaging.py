# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The distribution: what is in it, and that it works with what it asks for and nothing else.

Built once, without a network. The fresh environment gets the wheel by pip, and of this environment's packages those
that the wheel requires without any extra.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
import zipfile
from email import message_from_bytes
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "gym_objstore": "gym_objstore",
    "gym_objstore_megatron": "adapters/gym_objstore_megatron",
    "gym_objstore_nemo_gym": "adapters/gym_objstore_nemo_gym",
    "gym_objstore_ray": "adapters/gym_objstore_ray",
    "gym_objstore_torch": "adapters/gym_objstore_torch",
    "gym_objstore_vllm": "adapters/gym_objstore_vllm",
}
EXTRAS = {
    "aioboto3",
    "cli",
    "control",
    "dev",
    "nemo-gym",
    "otel",
    "parquet",
    "prometheus",
    "proxy",
    "ray",
    "s3fs",
    "servers",
    "test",
    "test-gym",
    "torch",
}
ROUND_TRIP = """
import asyncio, sys
from gym_objstore import TokenEntry, TokenSink, TokenSource

async def main(url):
    sink, source = TokenSink(url, "run-1"), TokenSource(url, "run-1")
    await sink.put(TokenEntry(rollout_id="r", model_call_id="c", prompt_token_ids=[1],
                              generation_token_ids=[2], generation_log_probs=[-0.5]))
    print([one.generation_token_ids for one in (await source.freeze("r")).entries])

asyncio.run(main(sys.argv[1]))
"""


def ran(*command: object, cwd: Path = ROOT) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return the folder with the sdist and the wheel."""
    folder = tmp_path_factory.mktemp("built")
    ran(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return message_from_bytes(archive.read("gym_objstore-0.1.0.dist-info/METADATA"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Return the folder of programs of an environment with the wheel and what it cannot do without."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    programs = folder / "bin"
    python = programs / "python"
    site = Path(ran(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    ran(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--no-compile", wheel)
    for name in required():
        lend(name, site)
    return programs


def required() -> set[str]:
    """Return the distributions that ours requires without any extra, and what those require."""
    found: set[str] = set()
    waiting = ["gym-objstore"] if False else core_requirements()
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name not in found:
            found.add(name)
            waiting += wanted(distribution(name).requires or ())
    return found


def wanted(requirements) -> list[str]:
    parsed = map(Requirement, requirements)
    return [one.name for one in parsed if one.marker is None or one.marker.evaluate({"extra": ""})]


def lend(name: str, site: Path) -> None:
    """Let an environment have a distribution of this one."""
    files = distribution(name).files or ()
    for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
        (site / top).symlink_to(distribution(name).locate_file(top))
