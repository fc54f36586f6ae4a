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
    "docs",
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
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


@pytest.fixture(scope="module")
def programs(wheel, metadata, tmp_path_factory):
    """Return the folder of programs of an environment with the wheel and what it cannot do without."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    site = Path(ran(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    ran(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--no-compile", wheel)
    for name in closure(metadata.get_all("Requires-Dist")):
        lend(name, site)
    return folder / "bin"


def contents(archive: zipfile.ZipFile) -> dict[str, bytes]:
    return {name: archive.read(name) for name in archive.namelist()}


def closure(requirements) -> set[str]:
    """Return the distributions that these require without any extra, and what those require."""
    found: set[str] = set()
    waiting = wanted(requirements)
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
    found = distribution(name)
    for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
        (site / top).symlink_to(str(found.locate_file(top)))


def sources() -> set[str]:
    """Return the files of the packages as they are called in a wheel."""
    return {
        f"{package}/{path.relative_to(ROOT / folder).as_posix()}"
        for package, folder in PACKAGES.items()
        for path in (ROOT / folder).rglob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    }


def test_the_wheel_holds_the_packages_with_their_types_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == sources()
    assert {f"{package}/py.typed" for package in PACKAGES} <= names


def test_the_core_requires_six_packages(metadata):
    core = {Requirement(one).name for one in metadata.get_all("Requires-Dist") if "extra ==" not in one}
    assert core == {"boto3", "fsspec", "obstore", "orjson", "pydantic", "zstandard"}
    assert set(metadata.get_all("Provides-Extra")) == EXTRAS


def test_the_metadata_says_licence_python_and_what_it_is(metadata):
    assert (metadata["License-Expression"], metadata["License-File"]) == ("Apache-2.0", "LICENSE")
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload(decode=True).decode() == (ROOT / "README.md").read_text("utf-8")


def test_the_source_distribution_builds_the_same_wheel(built, wheel, tmp_path):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    again = tmp_path / "again"
    ran(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", again, cwd=unpacked)
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(next(again.glob("*.whl"))) as other:
        assert contents(one) == contents(other)


def test_the_source_distribution_holds_what_its_own_checks_need(built):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    for needed in ("LICENSE", "Makefile", ".ci/run", "docs/format-v1.md", "terraform/policies/trainer.json.tftpl"):
        assert needed in names
    vectors = ROOT / "tests" / "vectors"
    assert {f"tests/vectors/{path.relative_to(vectors)}" for path in vectors.rglob("*/*/*") if path.is_file()} <= names


def test_the_wheel_works_with_its_requirements_alone(programs, tmp_path):
    python = programs / "python"
    where = ran(python, "-I", "-c", "import gym_objstore; print(gym_objstore.__file__)", cwd=tmp_path)
    assert where.startswith(str(programs.parent))
    said = ran(python, "-I", "-c", ROUND_TRIP, f"file://{tmp_path}/store", cwd=tmp_path)
    assert said == "[[2]]\n"
    known = f"import importlib.util as u; print(*[one for one in {sorted(PACKAGES)} if u.find_spec(one)])"
    assert ran(python, "-I", "-c", known, cwd=tmp_path).split() == sorted(PACKAGES)


def test_the_command_says_which_extra_is_missing(programs, tmp_path):
    done = subprocess.run([programs / "gym-objstore", "ls"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "gym-objstore: the command line needs its extra: pip install 'gym-objstore[cli]'\n"
