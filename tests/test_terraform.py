# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The terraform modules: readable, explained, and rendering the policies that ``test_policies`` tries."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gym_objstore.keys import FAMILIES
from tests.identities import CONTROL, EXPIRY, IDENTITIES, document

ROOT = Path(__file__).parents[1] / "terraform"
FILES = sorted(ROOT.rglob("*.tf"))
MODULES = ("policies", "aws", "s3-compatible")
VALIDATED_BY_POLICIES = {"irsa", "trusted_principals"}
"""Variables that a module hands on to the module of the policies as they are, which says what is wrong."""
FREE = {"access_log_bucket", "region", "tags"}
"""Variables of which any value of their type may be right."""

needs_terraform = pytest.mark.skipif(shutil.which("terraform") is None, reason="terraform is not on the path")


BLOCK = re.compile(r'^(\w+)((?: "[^"]+")*) \{(?:\n(.*?)^)?\}$', re.DOTALL | re.MULTILINE)
FIELD = re.compile(r"^  (\w+)(?: += (.*))?", re.MULTILINE)


def blocks(path: Path, kind: str) -> dict[str, dict[str, str]]:
    """Return a module's blocks of one kind by name, each with its fields; as terraform formats them, layout tells."""
    files = [path] if path.is_file() else sorted(path.glob("*.tf"))
    found = [one for file in files for one in BLOCK.findall(file.read_text(encoding="utf-8")) if one[0] == kind]
    return {names.split('"')[-2]: dict(FIELD.findall(body)) for _, names, body in found}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_file_is_blocks_and_comments_laid_out_alike(path):
    text = path.read_text(encoding="utf-8")
    assert "\t" not in text
    assert [line for line in text.splitlines() if line != line.rstrip() or len(line) > 160] == []
    assert [line for line in BLOCK.sub("", text).splitlines() if line and not line.startswith("#")] == []
    odd = [line for line in text.splitlines() if line.strip() and (len(line) - len(line.lstrip())) % 2]
    assert odd == []
    assert text.endswith("}\n")


@pytest.mark.parametrize("module", MODULES)
def test_every_variable_and_output_is_explained(module):
    variables = blocks(ROOT / module, "variable")
    for name, body in variables.items():
        assert len(body["description"].strip('"')) > 10, name
        is_flag = body["type"] == "bool"
        handed_on = module != "policies" and name in VALIDATED_BY_POLICIES
        assert is_flag or handed_on or name in FREE or "validation" in body, f"{name} is not validated"
    for name, body in blocks(ROOT / module, "output").items():
        assert len(body["description"].strip('"')) > 10, name


@pytest.mark.parametrize("module", ["aws", "s3-compatible"])
def test_lifecycle_rules_know_every_family(module):
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / module).glob("*.tf"))
    assert f"families = {json.dumps(list(FAMILIES))}" in text
    for family in FAMILIES:
        assert f"{family} " in text.partition('variable "retention_days"')[2].partition("default = {}")[0]


def test_examples_use_variables_that_their_modules_have():
    for module in ("aws", "s3-compatible"):
        used = blocks(ROOT / "examples" / module, "module")["rollouts"]
        known = set(blocks(ROOT / module, "variable"))
        assert set(used) - {"source"} <= known
        outputs = set(blocks(ROOT / module, "output"))
        text = (ROOT / "examples" / module / "main.tf").read_text(encoding="utf-8")
        assert {
            line.rpartition("module.rollouts.")[2] for line in text.splitlines() if "module.rollouts." in line
        } <= outputs


@needs_terraform
def test_files_are_formatted():
    done = terraform(ROOT, "fmt", "-check", "-recursive", "-diff")
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def applied(tmp_path_factory):
    """Return a function that applies the module of the policies, which needs no provider, and returns its outputs."""
    folder = tmp_path_factory.mktemp("policies")
    for path in (ROOT / "policies").iterdir():
        shutil.copy(path, folder)
    assert terraform(folder, "init", "-input=false").returncode == 0

    def apply(**variables) -> dict | str:
        (folder / "terraform.tfvars.json").write_text(json.dumps(variables), encoding="utf-8")
        done = terraform(folder, "apply", "-auto-approve", "-input=false")
        if done.returncode:
            return done.stderr
        found = json.loads(terraform(folder, "output", "-json").stdout)
        return {name: one["value"] for name, one in found.items()}

    return apply


def terraform(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1"}
    command = ["terraform", *arguments, *(["-no-color"] if arguments[0] in {"init", "apply"} else [])]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@needs_terraform
def test_terraform_renders_what_the_servers_are_tried_with(applied):
    for prefix, key_prefix in (("", ""), ("team/rl", "team/rl/")):
        rendered = applied(bucket="rollouts", prefix=prefix)["documents"]
        assert {name: json.loads(text) for name, text in rendered.items()} == {
            name: document(name, bucket="rollouts", prefix=key_prefix) for name in IDENTITIES
        }


@needs_terraform
def test_what_an_identity_may_beside_its_own_is_an_option(applied):
    plain = applied(bucket="rollouts")["documents"]
    wide = applied(bucket="rollouts", model_server_retires_ledgers=True, sweeper_removes_runs=True)["documents"]
    for identity, extra in (("model-server", CONTROL), ("sweeper", EXPIRY)):
        added = document(extra, bucket="rollouts", prefix="")["Statement"]
        assert statements(wide[identity]) == [*statements(plain[identity]), *added]
    assert all(wide[name] == plain[name] for name in ("inference-worker", "trainer", "viewer"))


@needs_terraform
def test_a_key_is_used_by_everybody_and_enforced_by_the_bucket(applied):
    key = "arn:aws:kms:us-east-1:123456789012:key/1234"
    plain, found = applied(bucket="rollouts"), applied(bucket="rollouts", kms_key_arn=key)
    may = {name: statements(text)[-1] for name, text in found["documents"].items()}
    assert {one["Resource"] for one in may.values()} == {key}
    assert {name for name, one in may.items() if "kms:GenerateDataKey" in one["Action"]} == {
        "model-server",
        "inference-worker",
        "trainer",
    }
    assert [one["Sid"] for one in statements(plain["bucket_policy"])] == ["RefusePlainHttp", "RefuseOldTls"]
    assert [one["Sid"] for one in statements(found["bucket_policy"])][2:] == [
        "RefuseOtherEncryption",
        "RefuseOtherKeys",
    ]
    assert {one["Effect"] for one in statements(found["bucket_policy"])} == {"Deny"}


@needs_terraform
def test_a_directory_bucket_lets_a_viewer_read_only(applied):
    arn = "arn:aws:s3express:us-east-1:123456789012:bucket/rollouts--use1-az4--x-s3"
    found = applied(bucket="rollouts", directory_bucket_arn=arn)["documents"]
    sessions = {name: statements(text)[-1] for name, text in found.items()}
    assert {one["Action"] for one in sessions.values()} == {"s3express:CreateSession"}
    assert {name for name, one in sessions.items() if "Condition" in one} == {"viewer"}


@needs_terraform
def test_a_role_is_taken_by_its_service_account_alone(applied):
    irsa = {
        "oidc_provider_arn": "arn:aws:iam::123456789012:oidc-provider/oidc.eks.us-east-1.amazonaws.com/id/ABC",
        "namespace": "rl",
        "service_accounts": {"trainer": "trainer"},
    }
    people = {"viewer": ["arn:aws:iam::123456789012:role/people"]}
    trust = applied(bucket="rollouts", irsa=irsa, trusted_principals=people)["trust"]
    assert set(trust) == {"trainer", "viewer"}
    (account,) = statements(trust["trainer"])
    assert account["Condition"]["StringEquals"] == {
        "oidc.eks.us-east-1.amazonaws.com/id/ABC:aud": "sts.amazonaws.com",
        "oidc.eks.us-east-1.amazonaws.com/id/ABC:sub": "system:serviceaccount:rl:trainer",
    }
    assert statements(trust["viewer"])[0]["Principal"] == {"AWS": people["viewer"]}


@needs_terraform
@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"bucket": "Rollouts"}, "A bucket name has 3 to 63"),
        ({"bucket": "rollouts", "prefix": "rl/"}, "without a slash at either end"),
        ({"bucket": "rollouts", "prefix": "*"}, "without wildcards"),
        ({"bucket": "rollouts", "kms_key_arn": "alias/mine"}, "named by the ARN of a key"),
        ({"bucket": "rollouts", "trusted_principals": {"root": []}}, "named by identity"),
        ({"bucket": "rollouts", "trusted_principals": {"viewer": ["*"]}}, "without wildcards"),
    ],
)
def test_a_bad_variable_is_refused(applied, variables, complaint):
    answer = applied(**variables)
    assert isinstance(answer, str)
    assert complaint in " ".join(answer.replace("│", " ").split())


def statements(text: str) -> list[dict]:
    return json.loads(text)["Statement"]
