# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What the documents show is what happens, what they name exists, and what exists is documented."""

from __future__ import annotations

import importlib
import json
import re
import runpy
import shlex
import tomllib

import pytest
import yaml

import gym_objstore
from gym_objstore import errors
from gym_objstore.cli.app import EXIT_CODES
from gym_objstore.store.options import _AWS_NAMES, _KEYS, OPTIONS
from gym_objstore.usage import Prices
from tests.error_kinds import CLASSES, raised_kinds
from tests.gym_side import server_side
from tests.pages import (
    PAGES,
    ROOT,
    anchors_of,
    blocks_of,
    is_harmless,
    is_shown_as,
    links_of,
    prose_of,
    run_block,
    text_of,
)


def read_json(text):
    """Read one document, or one in each line."""
    return [json.loads(one) for one in ([text] if text.startswith("{\n") else text.splitlines())]


REFERENCE = runpy.run_path(str(ROOT / "docs/site/cli_reference.py"))
COMMANDS = dict(REFERENCE["commands"](REFERENCE["get_command"](REFERENCE["app"])))
GROUPS = {name.split()[0] for name in COMMANDS if " " in name}
THEIRS = {"--help", "--install-completion", "--show-completion", "--no-deps", "--ignore-requires-python", "--no-serve"}
"""Options of other programs, or of every command."""
READABLE = {"json": read_json, "toml": tomllib.loads, "yaml": lambda text: list(yaml.safe_load_all(text))}
OF_OTHERS = ("docs/benchmarks.md", "docs/decisions/", "docs/reliability.md", "docs/threat-model.md")
"""Where options are shown that are other programs'."""
DOMAINS = "docs/format-v1.md"
"""What is hashed there begins with words that look like commands."""
METRICS = "docs/metrics.md"
"""OpenTelemetry's names look like modules."""
PROOF = re.compile(r"`([\w/]+\.py)::(\w+)`")
ADAPTERS = ("megatron", "nemo_gym", "ray", "torch", "vllm")


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_code_works(page, tmp_path):
    """Blocks of a page run one after another in one folder; what is shown behind one is what it printed."""
    printed = None
    for block in blocks_of(page):
        if block.kind == "text" and block.follows and printed is not None:
            assert is_shown_as(block.code, printed), f"line {block.line}, printed:\n{printed}"
        printed = None
        if block.reason is not None:
            continue
        assert block.kind in {"python", "sh", "text", "", *READABLE}, f"line {block.line}: {block.kind}"
        if block.kind in READABLE:
            READABLE[block.kind](block.code)
        elif block.kind in {"python", "sh"}:
            assert block.kind == "python" or is_harmless(block), f"line {block.line}: say why nobody runs it"
            printed = run_block(block, tmp_path)


@server_side
@pytest.mark.usefixtures("gym_given_back")
@pytest.mark.parametrize("page", [page for page in PAGES if "token_id_capture:" in text_of(page)])
def test_the_yaml_is_what_gym_reads(page):
    from nemo_gym.token_id_capture.config import TokenIdCaptureConfig

    for block in blocks_of(page):
        if block.kind == "yaml" and "token_id_capture:" in block.code:
            config = TokenIdCaptureConfig.model_validate(yaml.safe_load(block.code))
            built = [config.build_lineage_store(), *([config.build_sink()] if "sink:" in block.code else [])]
            assert {one.settings.run_id for one in built} == {"run-7"}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page):
    for link in links_of(page):
        target, _, anchor = link.partition("#")
        found = ((ROOT / page).parent / target).resolve() if target else ROOT / page
        assert found.exists(), link
        assert not anchor or anchor in anchors_of(str(found.relative_to(ROOT))), link


@pytest.mark.parametrize("page", [page for page in PAGES if page != DOMAINS])
def test_commands_and_options_that_are_shown_exist(page):
    every = {option for name in COMMANDS for option in options_of(name)} | THEIRS
    for shown in re.findall(r"gym-objstore ((?:[a-z]+|-)[^`\n#|&;]*)", text_of(page)):
        words = shlex.split(shown.strip().rstrip("\\'\""), posix=False)
        name = " ".join(words[: 2 if words[0] in GROUPS else 1])
        if name not in COMMANDS:
            assert words[0] in GROUPS | THEIRS, shown
            continue
        assert {word for word in words if re.fullmatch(r"--[a-z-]+", word)} <= options_of(name) | THEIRS, shown
    if not page.startswith(OF_OTHERS):
        assert set(re.findall(r"`(--[a-z-]+)", prose_of(page))) <= every


def options_of(name):
    return {option for one in COMMANDS[name].params for option in (*one.opts, *one.secondary_opts)}


def test_the_reference_of_commands_is_what_they_say_themselves():
    """If not: python docs/site/cli_reference.py."""
    assert text_of("docs/cli.md") == REFERENCE["page"]()


def test_every_command_and_option_has_a_help_text():
    for name, command in COMMANDS.items():
        assert command.help, name
        assert [one.name for one in command.params if not one.help] == [], name


def test_the_variables_are_those_that_the_code_reads():
    sources = (*(ROOT / "gym_objstore").rglob("*.py"), *(ROOT / "adapters").rglob("*.py"))
    found = {name for path in sources for name in re.findall(r"\bGYM_OBJSTORE_[A-Z_]*[A-Z]", path.read_text())}
    found |= {f"GYM_OBJSTORE_{name.upper()}" for name in OPTIONS if name not in _KEYS}
    documented = {name for page in PAGES for name in re.findall(r"\bGYM_OBJSTORE_[A-Z_]*[A-Z]", text_of(page))}
    assert documented == found
    table = set(re.findall(r"`([A-Z_0-9]+)`", text_of("docs/settings.md")))
    assert found | {name for names in _AWS_NAMES.values() for name in names} <= table


def test_every_public_name_is_documented():
    documented = set(re.findall(r"`(\w+)`", text_of("docs/python.md")))
    public = set(gym_objstore.__all__).union(*(exports_of(f"gym_objstore_{name}") for name in ADAPTERS))
    assert public - documented == set()


def exports_of(package):
    """Return the public names of an adapter; its source says them where its framework is not installed."""
    source = (ROOT / "adapters" / package / "__init__.py").read_text()
    return set(re.findall(r'"(\w+)"', re.search(r"__all__ = [\[(](.*?)[\])]", source, re.DOTALL)[1]))


def test_every_public_name_that_is_shown_exists():
    for name in re.findall(r"^\| `(\w+)`", text_of("docs/python.md").split("\n## In adapters")[0], re.MULTILINE):
        assert name in gym_objstore.__all__, name
    for page in (one for one in PAGES if one != METRICS):
        for module, name in re.findall(r"`(gym_objstore(?:\.[a-z_]+)+)\.([A-Za-z]\w*)", prose_of(page)):
            try:
                importlib.import_module(f"{module}.{name}")
            except ModuleNotFoundError:
                assert hasattr(importlib.import_module(module), name), f"{page}: {module}.{name}"


def test_the_table_of_errors_has_every_kind():
    documented = set()
    for part in text_of("docs/errors.md").split("\n## ")[1:]:
        name = part.split("\n", 1)[0]
        if name in CLASSES:
            assert f"exit code {EXIT_CODES[getattr(errors, name)]}" in part.lower(), name
            rows = re.findall(r"^\| (`[^|]+) \|", part, re.MULTILINE)
            documented |= {(name, kind) for row in rows for kind in re.findall(r"`(\w+)`", row)}
    assert documented == raised_kinds()


def test_every_answer_from_the_field_names_its_proof():
    answers = text_of("docs/faq.md").split("\n**")[1:]
    assert len(answers) == 31
    assert [answer for answer in answers if not PROOF.search(answer)] == []


@pytest.mark.parametrize("page", PAGES)
def test_tests_that_are_named_exist(page):
    for path, name in PROOF.findall(text_of(page)):
        source = ROOT / path if (ROOT / path).exists() else ROOT / "tests" / path
        assert re.search(rf"def {name}\(", source.read_text()), f"{path}::{name}"


def test_every_page_is_in_the_navigation():
    """Decision notes are there without being named."""
    told = re.findall(r"- (\S+\.md)$", text_of("docs/site/mkdocs.yml"), re.MULTILINE)
    pages = {page for page in PAGES if page.startswith("docs/") and not page.startswith("docs/decisions/")}
    assert {f"docs/{page}" for page in told} == pages


def test_dollars_follow_from_requests_and_prices():
    prices = {"PUT": Prices().put_million, "LIST": Prices().put_million, "GET": Prices().get_million}
    prices["HEAD"] = prices["GET"]
    rows = re.findall(r"^\|[^|]+\|[^|]*\| ([^|]+) \| ([\d.]+) \|$", text_of("docs/design.md"), re.MULTILINE)
    assert len(rows) == 12
    for requests, dollars in rows:
        found = sum(int(count) * prices[verb] for count, verb in re.findall(r"(\d+) ([A-Z]+)", requests))
        assert f"{found:.2f}" == dollars, requests
