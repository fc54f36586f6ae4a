# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``show``, ``stats``, ``tail`` and ``grep`` tell what is in a run's captures, whatever a model wrote there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from gym_objstore.captures import capture_put, line_of, mark
from gym_objstore.cli.app import app
from gym_objstore.flow import run
from gym_objstore.objects import announcement, write
from gym_objstore.store.opening import open_store
from gym_objstore.tokens import put_entry
from tests.entries import make_entry
from tests.gym_files import capture_file, exchange
from tests.server_pool import BUCKET
from tests.transcripts import conversations, rows

RUN = "run-1"
ESCAPE = "\x1b[2J\x1b]0;owned\x07[red]text[/red]\u202e\x9b31m"


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/store"


@pytest.fixture
def store(url):
    return open_store(url)


def call(url, *arguments: str):
    return CliRunner().invoke(app, [*arguments, "--url", url, "--run-id", RUN], catch_exceptions=False)


def document(url, *arguments: str):
    return json.loads(call(url, *arguments, "--json").stdout)


def lines(url, *arguments: str):
    return [json.loads(line) for line in call(url, *arguments, "--json").stdout.splitlines()]


def capture(store, rollout, **fields) -> str:
    put = capture_put(RUN, rollout, line_of(fields, 0.0))
    run(write(put, [announcement("captures", RUN)]), store)
    return put.key


def turn(number: int, messages: list[dict], answer: dict, **fields) -> dict:
    usage = {"prompt_tokens": 10 * number, "completion_tokens": number, "total_tokens": 11 * number}
    return {
        **exchange(f"c{number}", float(number)),
        "latency_ms": 100.0 * number,
        "latency_ttft_ms": 20.5,
        "request": {"model": "m", "messages": messages},
        "response": {"model": "m", "choices": [{"message": answer, "finish_reason": "stop"}], "usage": usage},
        **fields,
    }


@pytest.fixture
def talk(store):
    """A rollout of two good calls, one that failed, one that is damaged, and a marker."""
    asked = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "weather in Rome?"}]
    tool = {"id": "t1", "function": {"name": "look", "arguments": '{"city": "Rome"}'}}
    called = {"role": "assistant", "content": None, "reasoning_content": "I should\nlook\nit up", "tool_calls": [tool]}
    more = [*asked, called, {"role": "tool", "tool_call_id": "t1", "content": "sunny"}]
    capture(store, "0-0", **turn(1, asked, called))
    capture(store, "0-0", **turn(2, more, {"role": "assistant", "content": "It is sunny."}))
    failed = {"error_category": "rate_limit", "status_code": 429, "response": {"error": {"message": "slow down"}}}
    capture(store, "0-0", **turn(3, asked, {}, **failed))
    key = capture(store, "0-0", **turn(4, asked, {}))
    store.put(key, store.get(key)[:-1])
    run(write(mark(RUN, "0-0", "c5", {"at": 1.0})), store)


def test_show_reads_as_a_conversation(url, talk):
    assert call(url, "show", "0-0").stdout.splitlines() == [
        "0-0: 4 calls captured",
        "",
        "call 0  m  chat  200  100.0 ms  first token 20.5 ms  tokens in 10 out 1  stop",
        "  system: be brief",
        "  user: weather in Rome?",
        "  assistant (reasoning): I should",
        "    ... 2 more lines",
        '  assistant calls look [t1]: {"city":"Rome"}',
        "",
        "call 1  m  chat  200  200.0 ms  first token 20.5 ms  tokens in 20 out 2  stop",
        "  ... 4 turns as in call 0",
        "  tool answers [t1]: sunny",
        "  assistant: It is sunny.",
        "",
        "call 2  m  chat  429  300.0 ms  first token 20.5 ms  error rate_limit",
        "  ... 2 turns as in call 0, nothing new asked",
        '  assistant (error): {"message":"slow down"}',
        "",
        f"call 3  damaged capture, sha256={digest_of(url, 'c4')}",
        "",
        "1 captures are damaged and cannot be read",
        "",
        "incomplete: a marker says that a capture of this rollout was lost",
    ]


def digest_of(url, called) -> str:
    return next(meta.key.split(".")[-2] for meta in open_store(url).scan("captures/") if f".{called}." in meta.key)


def test_show_full_unfolds_the_reasoning(url, talk):
    assert "  assistant (reasoning): I should\n    look\n    it up\n" in call(url, "show", "0-0", "--full").stdout


def test_one_long_line_of_reasoning_is_folded_too(url, store):
    capture(store, "0-0", **turn(1, [], {"role": "assistant", "content": "x", "reasoning": "y" * 1_000}))
    assert f"(reasoning): {'y' * 200}... 800 more characters\n" in call(url, "show", "0-0").stdout


def test_show_says_the_same_to_machines_and_tells_of_tokens_as_before(url, store, talk):
    run(put_entry(RUN, make_entry("0-0", "c1"), [announcement("tokens", RUN)]), store)
    found = document(url, "show", "0-0")
    assert [one["continues"] for one in found["model_calls"]] == [None, 0, 0]
    assert found["model_calls"][1]["request"] == [
        {"role": "tool", "kind": "tool_result", "text": "sunny", "name": "", "call_id": "t1"}
    ]
    assert (found["unreadable_captures"], found["captures_incomplete"]) == (1, True)
    assert ([one["model_call_id"] for one in found["calls"]], found["state"]) == (["c1"], "complete")
    assert "0-0: complete, version 1" in call(url, "show", "0-0").stdout


def test_a_rollout_of_captures_alone_is_shown_and_an_absent_one_is_not(url, talk):
    assert document(url, "show", "0-0")["state"] == "empty"
    assert call(url, "show", "0-1").exit_code == 3


def test_nothing_a_model_writes_reaches_the_terminal_raw(url, store):
    answer = {"role": "assistant", "content": ESCAPE, "reasoning_content": ESCAPE}
    capture(store, ESCAPE, **turn(1, [{"role": ESCAPE, "content": ESCAPE}], answer, error_category=ESCAPE))
    for arguments in (("show", ESCAPE), ("tail", "--once"), ("grep", "text"), ("stats",), ("show", f"{ESCAPE}0")):
        result = call(url, *arguments)
        shown = result.stdout + result.stderr
        assert "text" in shown
        assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(shown), arguments
    assert "[red]text[/red]" in call(url, "show", ESCAPE).stdout


def test_what_looks_like_an_emoji_code_stays_what_it_is_and_no_encoding_is_too_narrow(url, store):
    capture(store, "0-0", **turn(1, [], {"role": "assistant", "content": ":smile: é 🙂"}))
    assert "assistant: :smile: é 🙂" in call(url, "show", "0-0").stdout
    command = [sys.executable, "-m", "gym_objstore", "show", "0-0", "--url", url, "--run-id", RUN]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    shown = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    assert "assistant: :smile: \\xe9 \\U0001f642" in shown


def test_lone_surrogates_are_shown_not_sent(url, tmp_path):
    (tmp_path / "gym").mkdir()
    capture_file(tmp_path / "gym", "0-0", b'{"model_call_id":"c1","request":{"input":"\\ud800"}}')
    call(url, "import", str(tmp_path / "gym"))
    assert "damaged capture" in call(url, "show", "0-0").stdout
    assert document(url, "stats")["unreadable_captures"] == 1


def test_stats_add_a_run_up(url, store, talk):
    capture(store, "1-0", **turn(5, [], {}, dialect="responses"))
    found = document(url, "stats")
    assert (found["rollouts"], found["incomplete_rollouts"], found["unreadable_captures"]) == (2, 1, 1)
    assert (found["calls"], found["tokens_in"], found["tokens_reasoning"], found["error_rate"]) == (4, 80, None, 0.25)
    assert found["latency_p50_ms"] == pytest.approx(200.0, rel=0.01)
    assert [(one["dialect"], one["calls"], one["errors"]) for one in found["groups"]] == [
        ("chat", 3, 1),
        ("responses", 1, 0),
    ]
    shown = call(url, "stats").stdout
    assert "run-1: 2 rollouts, 1 incomplete, 4 calls, 1 unreadable captures" in shown
    assert "errors: rate_limit 1" in shown
    assert not re.search(r"\d{3}\.\d", shown)


def test_tail_prints_each_call_on_one_line(url, store, talk):
    found = lines(url, "tail", "--once")
    assert [(one["rollout_id"], one["call_index"], one.get("unreadable")) for one in found] == [
        ("0-0", 0, None),
        ("0-0", 1, None),
        ("0-0", 2, None),
        ("0-0", 3, True),
    ]
    assert (found[1]["said"], found[0]["said"], "request" in found[0]) == (
        "It is sunny.",
        'look({"city":"Rome"})',
        False,
    )
    shown = call(url, "tail", "--once").stdout.splitlines()
    assert len(shown) == 4
    assert shown[1].startswith("0-0  call 1  m  chat  200")
    assert shown[1].endswith("It is sunny.")
    capture(store, "1-0", **turn(5, [], {}))
    assert [one["rollout_id"] for one in lines(url, "tail", "--once", "--rollout", "1-0")] == ["1-0"]


def test_tail_follows_until_it_is_interrupted(url, store, monkeypatch):
    naps = []

    def nap(seconds):
        naps.append(seconds)
        if len(naps) > 1:
            raise KeyboardInterrupt
        capture(store, "0-0", **turn(1, [], {"role": "assistant", "content": "new"}, completed_at=9e9))

    monkeypatch.setattr("gym_objstore.cli.captures.time.sleep", nap)
    result = CliRunner().invoke(app, ["tail", "--url", url, "--run-id", RUN, "--interval", "0.5"])
    assert (naps, "no such run" in result.stderr) == ([0.5, 0.5], True)
    assert [line.startswith("0-0  call 0  m") for line in result.stdout.splitlines() if line] == [True]


def test_grep_finds_what_was_said_once(url, talk):
    found = lines(url, "grep", "sunny")
    assert [(one["call_index"], one["role"], one["kind"]) for one in found] == [
        (1, "tool", "tool_result"),
        (1, "assistant", "text"),
    ]
    assert [one["role"] for one in lines(url, "grep", "SUNNY", "-i", "--role", "tool")] == ["tool"]
    assert [one["match"] for one in lines(url, "grep", "loo?k")] == ["look", "look"]
    assert "0-0  call 1  tool tool_result: sunny" in call(url, "grep", "sunny").stdout
    assert "1 captures are damaged and were not searched" in call(url, "grep", "sunny").stderr


def test_grep_chooses_rollouts_and_models_and_says_by_its_exit_code_whether_it_found_anything(url, store, talk):
    capture(store, "1-0", **turn(5, [{"role": "user", "content": "sunny?"}], {}))
    assert [one["rollout_id"] for one in lines(url, "grep", "sunny", "--rollout", "1-0")] == ["1-0"]
    assert call(url, "grep", "sunny", "--model", "m").exit_code == 0
    assert call(url, "grep", "sunny", "--model", "other").exit_code == 1
    assert call(url, "grep", "(").exit_code == 2


def test_rollouts_that_cannot_be_named_are_said(url, store):
    capture(store, "x" * 150, **turn(1, [{"role": "user", "content": "hi"}], {}))
    assert "1 rollouts have ids too long" in call(url, "stats").stdout
    assert "1 rollouts have ids too long" in call(url, "grep", "hi").stderr
    assert call(url, "grep", "hi", "--rollout", "x" * 150).exit_code == 0
    assert "user: hi" in call(url, "show", "x" * 150).stdout


@pytest.mark.parametrize("command", [("stats",), ("tail", "--once"), ("grep", "x")])
def test_a_run_that_is_not_there_is_an_error(url, command):
    assert call(url, *command).exit_code == 3


def test_real_transcripts_are_told_without_repeating_them(url, store):
    """Every turn that nemo-gym's own agents took is shown once, however often their requests repeat it."""
    talk = max(
        (one for one in conversations() if one.resolvable and len(one.calls) > 3), key=lambda one: len(one.calls)
    )
    for number, one in enumerate(talk.calls):
        said = {"request": {"input": list(one.request_items)}, "response": {"output": list(one.output_items)}}
        capture(store, "0-0", **exchange(f"c{number}", float(number + 1)), **said)
    found = document(url, "show", "0-0")["model_calls"]
    assert [one["continues"] for one in found] == [None, *range(len(talk.calls) - 1)]
    assert "turns as in call 0" in call(url, "show", "0-0").stdout


def test_a_real_capture_of_nemo_gym_has_the_headline_it_should(url, store):
    found = next(row["ng_model_call_capture"] for _, row in rows() if row.get("ng_model_call_capture"))
    call_ = found["calls"][0]
    usage = {"prompt_tokens": call_["tokens_in"], "completion_tokens": call_["tokens_out"]}
    response = {"model": call_["model"], "choices": [{"finish_reason": "stop", "message": {}}], "usage": usage}
    names = ("model_call_id", "dialect", "status_code", "completed_at", "latency_ttft_ms")
    fields = {name: call_[name] for name in names}
    capture(store, "0-0", **fields, latency_ms=call_["latency_total_ms"], response=response)
    assert (
        "call 0  gym-policy-model  chat  200  17742.7 ms  first token 17742.5 ms  tokens in 6343 out 403  stop"
        in call(url, "show", "0-0").stdout
    )


def test_a_real_server_answers_all_of_them(seaweedfs_server, prefix, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", seaweedfs_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", seaweedfs_server.secret_key)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", seaweedfs_server.endpoint)
    url = f"s3://{BUCKET}/{prefix}"
    for rollout in ("0-0", "1-0"):
        capture(open_store(url), rollout, **turn(1, [{"role": "user", "content": "hi"}], {"content": "sunny"}))
    assert document(url, "stats")["calls"] == 2
    assert [one["rollout_id"] for one in lines(url, "tail", "--once")] == ["0-0", "1-0"]
    assert [one["rollout_id"] for one in lines(url, "grep", "hi")] == ["0-0", "1-0"]
    assert "user: hi" in call(url, "show", "1-0").stdout
