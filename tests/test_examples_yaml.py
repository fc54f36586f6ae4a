# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The compose file and the Kubernetes manifests: read as YAML, and held to what they promise."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from gym_objstore.cli.app import app
from gym_objstore.settings import RUN_VARIABLE, SPILL_VARIABLE, URL_VARIABLE
from gym_objstore.store.options import _AWS_NAMES, OPTIONS

EXAMPLES = Path(__file__).parents[1] / "examples"
COMPOSE = yaml.safe_load((EXAMPLES / "compose" / "compose.yaml").read_text(encoding="utf-8"))
MANIFESTS = [
    (path.name, one)
    for path in sorted((EXAMPLES / "kubernetes").glob("*.yaml"))
    for one in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]
PODS = {
    one["metadata"]["name"]: one["spec"]["template"]["spec"]
    for _, one in MANIFESTS
    if one["kind"] in {"Deployment", "Job"}
}
CONFIG = {one["metadata"]["name"]: one["data"] for _, one in MANIFESTS if one["kind"] == "ConfigMap"}
READ_BY_US = {URL_VARIABLE, RUN_VARIABLE, SPILL_VARIABLE, *(f"GYM_OBJSTORE_{name.upper()}" for name in OPTIONS)}
READ_BY_AWS = {name for names in _AWS_NAMES.values() for name in names}
READ_BY_OTHERS = {"NEMO_GYM_TOKEN_CAPTURE_CONTROL_TOKEN", "INFERENCE_API_KEY"}
PINNED = re.compile(r"[\w./-]+:(?!latest$)[\w.-]*\d[\w.-]*")


def containers(pod):
    return [*pod.get("initContainers", []), *pod["containers"]]


def every_container():
    return [one for pod in PODS.values() for one in containers(pod)]


def test_the_manifests_are_the_parts_of_a_run():
    assert sorted((one["kind"], one["metadata"]["name"]) for _, one in MANIFESTS) == [
        ("ConfigMap", "gym"),
        ("ConfigMap", "run"),
        ("Deployment", "gym-model-server"),
        ("Deployment", "inference-worker"),
        ("Job", "trainer"),
        ("Namespace", "rl"),
        ("Service", "gym-model-server"),
        ("Service", "inference-worker"),
        ("ServiceAccount", "gym-model-server"),
        ("ServiceAccount", "inference-worker"),
        ("ServiceAccount", "trainer"),
    ]
    assert {one["metadata"].get("namespace", "rl") for _, one in MANIFESTS} == {"rl"}


@pytest.mark.parametrize("name", PODS)
def test_a_pod_has_its_own_account_and_shares_no_volume(name):
    pod = PODS[name]
    assert pod["serviceAccountName"] == name
    assert all(set(volume) - {"name"} <= {"configMap", "emptyDir"} for volume in pod.get("volumes", []))
    mounted = {mount["name"] for one in containers(pod) for mount in one.get("volumeMounts", [])}
    assert mounted == {volume["name"] for volume in pod.get("volumes", [])}


def test_images_are_pinned():
    images = [one["image"] for one in (*every_container(), *COMPOSE["services"].values())]
    assert [image for image in images if not PINNED.fullmatch(image)] == []


def test_no_secret_is_written_down():
    assert [one["kind"] for _, one in MANIFESTS if one["kind"] == "Secret"] == []
    named = [variable for one in every_container() for variable in one.get("env", [])]
    assert [one["name"] for one in named if "value" in one and re.search("KEY|TOKEN|SECRET|PASS", one["name"])] == []
    for name, service in COMPOSE["services"].items():
        for variable, value in service["environment"].items():
            assert variable == "SERVER" or value.startswith("${S3_"), f"{name}: {variable}"


def test_variables_are_ones_that_somebody_reads():
    named = {variable["name"] for one in every_container() for variable in one.get("env", [])}
    assert named <= READ_BY_US | READ_BY_AWS | READ_BY_OTHERS
    assert set(CONFIG["run"]) <= READ_BY_US | READ_BY_AWS
    assert {URL_VARIABLE, RUN_VARIABLE} <= set(CONFIG["run"])
    for one in every_container():
        assert {"configMapRef": {"name": "run"}} in one["envFrom"], one["name"]


def test_commands_exist_and_take_these_options():
    ours = get_command(app).commands
    theirs = {one.name for one in importlib.metadata.distribution("nemo-gym").entry_points}
    for one in every_container():
        program, *arguments = one.get("command", [None])
        assert program in {None, "gym-objstore", *theirs}
        if program == "gym-objstore":
            options = {option for parameter in ours[arguments[0]].itself().params for option in parameter.opts}
            assert {one for one in arguments if one.startswith("-")} <= options


@pytest.mark.parametrize("name", PODS)
def test_a_pod_starts_behind_the_preflight_of_its_identity(name):
    first, main = containers(PODS[name])
    assert first["command"] == ["gym-objstore", "doctor", "--identity", name.removeprefix("gym-"), "--json"]
    assert (first["image"], first["envFrom"]) == (main["image"], main["envFrom"])


def test_a_container_gains_no_privileges():
    for pod in PODS.values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        for one in containers(pod):
            assert one["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_gyms_configuration_names_classes_that_exist():
    found = yaml.safe_load(CONFIG["gym"]["model.yaml"])["token_id_capture"]
    module, _, name = found["lineage_store"].partition(":")
    assert callable(getattr(importlib.import_module(module), name))
    assert (found["external_staging"], found["rebuild_response"]) == (True, False)
    assert "dir" not in found


def test_every_server_of_the_compose_file_says_when_it_is_ready():
    services = COMPOSE["services"]
    assert set(services) == {"minio", "minio-ready", "seaweedfs", "seaweedfs-ready"}
    for name, service in services.items():
        assert service["healthcheck"]["test"][0] == "CMD", name
    for server in ("minio", "seaweedfs"):
        assert services[f"{server}-ready"]["depends_on"] == {server: {"condition": "service_healthy"}}
        assert "mc mb --ignore-existing server/rollouts" in services[f"{server}-ready"]["command"][0]
        assert all(port.startswith("127.0.0.1:") for port in services[server]["ports"])
