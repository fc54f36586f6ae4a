# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever a command is given, it ends with a documented exit code and says it in a line, never in a traceback."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.main import get_command
from typer.testing import CliRunner

from gym_objstore.cli.app import EXIT_CODES, Command, app
from gym_objstore.store.memory import MemoryStore
from tests.finished import RUN
from tests.security.hostile import IDS
from tests.whole_run import make_run

DOCUMENTED = {0, 1, *EXIT_CODES.values()}
ALWAYS = {("tail",): ["--once"]}
"""Options without which a command waits for what comes."""
SERVING = {"demo", "up", "proxy"}
"""Commands that start servers or processes; ``test_cli_proxy`` and ``test_up`` give them bad arguments."""

WORDS = st.sampled_from([*IDS, RUN, "good", "twice", "c0", "24h", "0s", "9" * 30 + "d", "-1", "nan", "{", "*", "[", ""])
TEXTS = WORDS | st.text(max_size=12)
URLS = st.sampled_from(
    ["memory://fuzzed", "memory://empty", "memory://", "", "x", "s3://", "s3://a/../b", "http://h/x"]
)
NUMBERS = st.integers(-3, 2**70).map(str) | WORDS
KNOWN = ("tokens", "ledger", "gym", "parquet", "trainer", "sweeper", "assistant", "keys")


def commands(group, above: tuple[str, ...] = ()):
    for name, listed in group.commands.items():
        one = listed.itself() if isinstance(listed, Command) else listed
        if hasattr(one, "commands"):
            yield from commands(one, (*above, name))
        elif name not in SERVING:
            yield (*above, name), one


COMMANDS = dict(commands(get_command(app)))


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    (folder / "file").write_bytes(b"\xff\x00 not text\n[")
    (folder / "table.json").write_bytes(b'{"a":' * 400)
    (folder / "folder").mkdir()
    (folder / "folder" / "r.capture.jsonl").write_bytes(b"{}\nnot json\n" + b"[" * 3_000)
    (folder / "folder" / "r.tokens.jsonl").write_bytes(b'{"rollout_id":"r"}\n')
    names = ("file", "table.json", "folder", "new", "file/below", "absent/deep", "x" * 300)
    return [str(folder / name) for name in names]


@pytest.fixture(autouse=True)
def _small_world(monkeypatch, tmp_path):
    monkeypatch.setenv("GYM_OBJSTORE_RETRY_SECONDS", "0")
    monkeypatch.setenv("GYM_OBJSTORE_SPILL_DIR", str(tmp_path / "spill"))
    monkeypatch.chdir(tmp_path)


def value_of(name, annotation, paths):
    if name == "to" and "Path" not in annotation:
        return URLS
    if "Path" in annotation or name in {"from_file", "spill_dir"}:
        return st.sampled_from(paths)
    return NUMBERS if "int" in annotation or "float" in annotation else TEXTS | st.sampled_from(KNOWN)


@st.composite
def arguments(draw, name, paths):
    command = COMMANDS[name]
    words = ["--url", draw(URLS), *ALWAYS.get(name, [])]
    signature = inspect.signature(command.callback).parameters
    for one in command.params:
        if one.name in {"url", "once", "help"} or not draw(st.booleans()):
            continue
        flag = getattr(one, "is_flag", False)
        value = [] if flag else [draw(value_of(one.name, repr(signature[one.name].annotation), paths))]
        if one.name == "run_id" and draw(st.booleans()):
            value = [RUN]
        words += value if one.param_type_name == "argument" else [one.opts[0], *value]
    return words + draw(st.lists(st.sampled_from(["--", "-", "--no-such-option"]), max_size=1))


@pytest.mark.parametrize("name", COMMANDS, ids=" ".join)
def test_a_command_ends_with_a_documented_code(name, paths):
    @settings(max_examples=max(6, settings.default.max_examples // 10))
    @given(arguments(name, paths))
    def ends(words):
        MemoryStore.named("fuzzed")._objects = dict(make_run()._objects)
        MemoryStore.named("empty")._objects.clear()
        ended = CliRunner().invoke(app, [*name, *words])
        assert ended.exception is None or isinstance(ended.exception, SystemExit), (words, ended.exc_info)
        assert ended.exit_code in DOCUMENTED, words
        assert "Traceback" not in ended.output
        if ended.exit_code > 1:
            assert ended.stderr.strip(), words

    ends()


@given(
    st.lists(TEXTS | st.sampled_from([*(word for name in COMMANDS for word in name), "--help", "--json"]), max_size=4)
)
@settings(max_examples=max(20, settings.default.max_examples // 4))
def test_any_words_end_with_a_documented_code(words):
    if not SERVING & set(words):
        ended = CliRunner().invoke(app, words, env={"GYM_OBJSTORE_URL": "memory://empty"})
        assert ended.exception is None or isinstance(ended.exception, SystemExit), (words, ended.exc_info)
        assert ended.exit_code in DOCUMENTED
