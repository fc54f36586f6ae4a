# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Write the golden vectors beside this file: inputs chosen here, results by the installed nemo-gym.

Run once per wire version, and read the difference before keeping it::

    python tests/vectors/generate.py

Each file is a JSON list of cases with a ``name``, the input and what nemo-gym made of it; a result of ``null`` means
that nemo-gym refused the input. The tests read the files only, so they need no nemo-gym; ``test_wire_compat`` checks
that the files still are what the installed nemo-gym says.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Case = dict[str, Any]

FOLDER = Path(__file__).parent

TOKEN_IDS: dict[str, list[int]] = {
    "empty": [],
    "one zero": [0],
    "one": [1],
    "two": [1, 2],
    "order matters": [2, 1],
    "one byte, two bytes, three bytes": [255, 256, 65_536],
    "largest": [2**64 - 1],
    "above a signed word": [2**63],
    "a hundred": [position * 7919 % 151_936 for position in range(100)],
    "negative": [1, -1],
    "too large": [2**64],
}

WEATHER_CALL = {"city": "Zürich", "days": 3, "unit": None}
WEATHER_TEXT = '{"unit": null, "days": 3, "city": "Z\\u00fcrich"}'

CONVERSATIONS: dict[str, list[Any]] = {
    "empty": [],
    "a question": [{"role": "user", "content": "What is 2 + 2?"}],
    "an answer": [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "4"}],
    "an empty answer": [{"role": "assistant", "content": ""}],
    "no content": [{"role": "assistant", "content": None}],
    "chat tool call": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": WEATHER_TEXT}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ],
    "responses tool call": [
        {"role": "system", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Ask the tool."}]},
        {"type": "function_call", "call_id": "call_1", "id": "fc_1", "name": "weather", "arguments": WEATHER_TEXT},
        {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
    ],
    "anthropic tool call": [
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I will look."},
                {"type": "tool_use", "id": "call_1", "name": "weather", "input": WEATHER_CALL},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "sunny"}]},
    ],
    "namespaced tool": [
        {"type": "function_call", "call_id": "c", "namespace": "mcp", "name": "read", "arguments": "{}"}
    ],
    "joined tool": [{"type": "function_call", "call_id": "c", "name": "mcp__read", "arguments": "{}"}],
    "tool call without call id": [{"type": "function_call", "id": "fc_9", "name": "f", "arguments": None}],
    "structured tool output": [
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "a"}]},
        {"role": "tool", "tool_call_id": "d", "content": [{"type": "text", "text": "b"}]},
        {"role": "user", "content": [{"type": "tool_result", "id": "e", "content": [{"type": "text", "text": "c"}]}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "f"}]},
    ],
    "tool output in two shapes at once": [
        {"type": "function_call_output", "role": "tool", "call_id": "c", "output": "a", "content": "b"}
    ],
    "image": [
        {
            "role": "user",
            "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"}],
        }
    ],
    "thinking block": [{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]}],
    "text blocks without type and bare text": [
        {"role": "assistant", "content": [{"text": "a"}, "b", "", {"text": ""}]}
    ],
    "text that is no text": [{"role": "assistant", "content": [{"type": "text", "text": 5}]}],
    "empty tool calls": [{"role": "assistant", "content": "", "tool_calls": [None, {}, {"function": None}]}],
    "role that is no text": [{"role": 7, "content": "a"}],
    "joined parts": [{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
    "one part": [{"role": "assistant", "content": "ab"}],
    "beyond ASCII": [{"role": "assistant", "content": "\u00e9\u4e16\U0001f642\u0000"}],
    "a message that is none": ["hello"],
    "content of another kind": [{"role": "assistant", "content": {"text": "a"}}],
    "a block of another kind": [{"role": "assistant", "content": [5]}],
    "a block without type and text": [{"role": "assistant", "content": [{"value": 5}]}],
    "a lone surrogate": [{"role": "assistant", "content": "\ud800"}],
    "a lone surrogate in arguments": [{"type": "function_call", "name": "f", "arguments": '{"a": "\\ud800"}'}],
    "tool calls of another kind": [{"role": "assistant", "tool_calls": ["f"]}],
}

ARGUMENTS: dict[str, Any] = {
    "none": None,
    "empty text": "",
    "white space": " \n",
    "no JSON": "  city=Z\u00fcrich ",
    "cut short": '{"city": "Z',
    "object": WEATHER_CALL,
    "the same as text": WEATHER_TEXT,
    "escapes": '"\\u00fc\\n\\/\\ud83d\\ude42"',
    "key order and spaces": '{ "b" : 1 , "a" : [ 1 , 2 ] }',
    "keys sort by code point": '{"\\ud83d\\ude42": 1, "\\uffff": 2, "a": 3, "B": 4}',
    "key given twice": '{"a": 1, "a": 2}',
    "numbers": "[1, 1.0, -0, -0.0, 1e2, 1E-7, 0.1, 123456789012345678, 5e-324]",
    "numbers JSON has not": "[NaN, Infinity, -Infinity, 1e999]",
    "largest integers": "[18446744073709551615, -9223372036854775808]",
    "integer too large": "18446744073709551616",
    "text in text": '"{\\"a\\": 1}"',
    "true": "true",
    "list": [3, {"b": None, "a": False}],
    "nested too deeply": "[" * 300 + "]" * 300,
    "lone surrogate": '"\\ud800"',
}

TOKENS = {"prompt_token_ids": [1, 2, 3], "generation_token_ids": [4, 5], "generation_log_probs": [-0.25, -1e-07]}
CALL = {"rollout_id": "task-0-1-a2", "model_call_id": "call-1", **TOKENS}
MESSAGE = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "4 \u00e9"}]}

ENTRIES: dict[str, Any] = {
    "least": CALL,
    "nothing generated": {**CALL, "generation_token_ids": [], "generation_log_probs": []},
    "every field": {
        **CALL,
        "schema_version": 1,
        "model": "policy",
        "routed_experts": {"dtype": "uint8", "shape": [5, 2], "data": "AAECAw=="},
        "output_items": [MESSAGE],
        "token_item_index": 0,
        "response_id": "resp_1",
        "created_at": 1764460800.125,
        "parent_call_id": "call-0",
        "cum_len": 5,
        "digest": "0" * 64,
        "parent_resolution": "resolved",
        "continuation_fingerprint": "1" * 64,
        "continuation_context_len": 3,
        "continuation_context_digest": "2" * 64,
        "parent_resolution_reason": "because",
        "fingerprint_version": 2,
        "prompt_is_delta": True,
        "prefix_requested": True,
        "prefix_supplied": True,
    },
    "root": {**CALL, "parent_resolution": "root"},
    "unresolved": {**CALL, "parent_resolution": "unresolved", "parent_resolution_reason": "no_match"},
    "parent without resolution": {**CALL, "parent_call_id": "call-0"},
    "unknown fields": {**CALL, "zeta": {"b": [1, 2.5, None], "a": "\u00e9"}, "alpha": None, "model_dump": 1},
    "floats": {**CALL, "generation_log_probs": [-0.1, -5e-324], "created_at": 1e22},
    "integers as log probs": {**CALL, "generation_log_probs": [0, -1]},
    "ids as text": {**CALL, "prompt_token_ids": ["1", " 2 "]},
    "largest id": {**CALL, "prompt_token_ids": [2**64 - 1]},
    "newer schema": {**CALL, "schema_version": 2},
    "older schema": {**CALL, "schema_version": 0},
    "lengths differ": {**CALL, "generation_log_probs": [-0.25]},
    "item index outside": {**CALL, "output_items": [MESSAGE], "token_item_index": 1},
    "item index negative": {**CALL, "output_items": [MESSAGE], "token_item_index": -1},
    "resolved without parent": {**CALL, "parent_resolution": "resolved"},
    "resolved with empty parent": {**CALL, "parent_resolution": "resolved", "parent_call_id": ""},
    "root with parent": {**CALL, "parent_resolution": "root", "parent_call_id": "call-0"},
    "unresolved with empty parent": {**CALL, "parent_resolution": "unresolved", "parent_call_id": ""},
    "delta without resolution": {**CALL, "prompt_is_delta": True, "parent_call_id": "call-0"},
    "delta root": {**CALL, "prompt_is_delta": True, "parent_resolution": "root"},
    "status of no name": {**CALL, "parent_resolution": "maybe"},
    "no rollout id": {name: value for name, value in CALL.items() if name != "rollout_id"},
    "id that is no text": {**CALL, "model_call_id": 5},
    "fraction as id": {**CALL, "prompt_token_ids": [1.5]},
    "no log prob": {**CALL, "generation_log_probs": [-0.25, None]},
    "output item that is none": {**CALL, "output_items": ["4"]},
}


def main() -> None:
    """Write every file of vectors."""
    for name, cases in vectors().items():
        text = json.dumps(cases, indent=1, sort_keys=True)
        (FOLDER / f"{name}.json").write_text(f"{text}\n", encoding="ascii")


def vectors() -> dict[str, list[Case]]:
    """Return the cases of each file, computed by the installed nemo-gym."""
    from nemo_gym.token_id_capture import fingerprint, records

    return {
        "digests": list(_cases(TOKEN_IDS, "token_ids", {"digest": records.compute_digest, "encoded": _encoded})),
        "conversations": list(
            _cases(
                CONVERSATIONS,
                "messages",
                {"fingerprint": fingerprint.assistant_fingerprint, "digest": fingerprint.conversation_digest},
            )
        ),
        "arguments": list(_cases(ARGUMENTS, "arguments", {"canonical": fingerprint.canonicalize_tool_arguments})),
        "entries": list(_cases(ENTRIES, "fields", {"canonical": _canonical_entry})),
    }


def _cases(inputs: dict[str, Any], field: str, results: dict[str, Callable[[Any], str]]) -> Iterable[Case]:
    for name, value in inputs.items():
        yield {"name": name, field: value, **{result: _or_refused(of, value) for result, of in results.items()}}


def _or_refused(function: Callable[[Any], str], value: Any) -> str | None:
    try:
        return function(value)
    except Exception:  # noqa: BLE001 - nemo-gym refuses by AttributeError and StopIteration as well
        return None


def _encoded(token_ids: list[int]) -> str:
    from nemo_gym.token_id_capture.records import encode_token_ids

    encoded: bytes = encode_token_ids(token_ids)
    return encoded.hex()


def _canonical_entry(fields: dict[str, Any]) -> str:
    """Return the line that nemo-gym's file store writes for a record."""
    import tempfile

    from nemo_gym.token_id_capture.records import TokenEntry
    from nemo_gym.token_id_capture.store import TokenCaptureStore

    entry = TokenEntry.model_validate(fields)
    with tempfile.TemporaryDirectory() as folder:
        store = TokenCaptureStore(folder)
        store.append(entry)
        return Path(store.path_for(entry.rollout_id)).read_text("utf-8").removesuffix("\n")


if __name__ == "__main__":
    main()
