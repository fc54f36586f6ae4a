# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A secret of a server is found wherever a run may have written it, and fails the run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.leaks import Leaks

SECRET = "a-secret-that-nobody-else-has"


@pytest.fixture
def leaks():
    return Leaks(lambda: [SECRET, "short"])


def report(longreprtext="", **sections):
    return SimpleNamespace(nodeid="tests/test_x.py::test_y", longreprtext=longreprtext, sections=list(sections.items()))


@pytest.mark.parametrize("found", [report(f"key={SECRET}!"), report(out="", log=f"WARNING {SECRET}")])
def test_a_secret_in_what_a_test_printed_is_found(leaks, found):
    leaks.pytest_runtest_logreport(report("short", out="nothing"))
    assert leaks.found == []
    leaks.pytest_runtest_logreport(found)
    assert leaks.found == ["the output of tests/test_x.py::test_y"]


def test_a_secret_in_a_file_fails_the_run(leaks, tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "clean").write_bytes(b"short")
    session = SimpleNamespace(
        config=SimpleNamespace(_tmp_path_factory=SimpleNamespace(getbasetemp=lambda: tmp_path)), exitstatus=0
    )
    leaks.pytest_sessionfinish(session)
    assert (leaks.found, session.exitstatus) == ([], 0)
    leak = tmp_path / "a" / "b" / "pickle"
    leak.write_bytes(b"\x80" + SECRET.encode() + b"\xff")
    leaks.pytest_sessionfinish(session)
    assert (leaks.found, session.exitstatus) == ([str(leak)], pytest.ExitCode.TESTS_FAILED)


def test_the_servers_of_this_run_have_secrets_that_are_looked_for(request, seaweedfs_server, minio_server):
    assert len(seaweedfs_server.secret_key) >= 16
    assert len(minio_server.secret_key) >= 16
    if not hasattr(request.config, "workerinput"):
        (plugin,) = [one for one in request.config.pluginmanager.get_plugins() if isinstance(one, Leaks)]
        assert {seaweedfs_server.secret_key, minio_server.secret_key} <= set(plugin._secrets())
