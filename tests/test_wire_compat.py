# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Records, digests and fingerprints are those of the installed nemo-gym, on its transcripts and on generated input.

What nemo-gym refuses is refused here too, and by ``Invalid`` alone. A token entry may be refused here though nemo-gym
takes it, for the reasons in ``HARMFUL`` and no others.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nemo_gym.token_id_capture import fingerprint as gym_fingerprint
from nemo_gym.token_id_capture import lineage as gym_lineage
from nemo_gym.token_id_capture import protocols as gym_protocols
from nemo_gym.token_id_capture import records as gym_records

from gym_objstore import digests, fingerprint, records, responses, stamps
from gym_objstore.errors import Invalid
from gym_objstore.sealing import seal
from tests import transcripts

if TYPE_CHECKING:
    from collections.abc import Callable

REFUSED = "refused"
thorough = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def ours(function: Callable[..., Any], *args: Any) -> Any:
    """Return the result, or ``REFUSED`` for our own refusal; anything else that is raised fails the test."""
    try:
        return function(*args)
    except Invalid:
        return REFUSED


def gyms(function: Callable[..., Any], *args: Any) -> Any:
    """Return the result, or ``REFUSED`` whatever was raised: nemo-gym refuses by AttributeError as well."""
    try:
        return function(*args)
    except Exception:  # noqa: BLE001
        return REFUSED


def gym_bytes(fields: Any) -> bytes:
    """Return the canonical bytes that nemo-gym's file store hashes."""
    entry = gym_records.TokenEntry.model_validate(fields)
    return orjson.dumps(entry.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)


def canonical(entry: Any) -> bytes:
    return seal(entry).canonical


def our_bytes(fields: Any) -> bytes:
    return canonical(records.parse_entry(fields))


def text_of(value: Any) -> str:
    """Return JSON text to compare by: NaN is not equal to itself."""
    return json.dumps(value, sort_keys=True)


# The golden vectors and the constants


def test_the_golden_vectors_are_what_the_installed_nemo_gym_says() -> None:
    from tests.vectors.generate import FOLDER, vectors

    for name, cases in vectors().items():
        assert json.loads((FOLDER / f"{name}.json").read_text("ascii")) == cases


def test_constants_are_equal() -> None:
    assert digests.DIGEST_VERSION == gym_records.DIGEST_VERSION
    assert fingerprint.FINGERPRINT_VERSION == gym_fingerprint.FINGERPRINT_VERSION
    assert records.SCHEMA_VERSION == gym_records.TOKEN_ENTRY_RECORD_SCHEMA_VERSION
    assert responses.TOKEN_FIELDS == gym_records.TOKEN_FIELDS
    assert [*records.ParentResolutionStatus] == [*gym_records.ParentResolutionStatus]


def test_entries_have_the_same_fields_in_the_same_order_with_the_same_defaults() -> None:
    def fields(model: Any) -> dict[str, Any]:
        return {name: field.get_default(call_default_factory=True) for name, field in model.model_fields.items()}

    assert list(fields(records.TokenEntry).items()) == list(fields(gym_records.TokenEntry).items())


@pytest.mark.parametrize("name", ["LineageMatch", "LineageResolution"])
def test_resolutions_have_the_same_fields_in_the_same_order_with_the_same_defaults(name: str) -> None:
    def fields(record: Any) -> list[tuple[str, Any]]:
        return [(field.name, field.default) for field in record.__dataclass_fields__.values()]

    assert fields(getattr(records, name)) == fields(getattr(gym_protocols, name))


# Real transcripts


def test_the_wheel_still_has_the_transcripts() -> None:
    talks = list(transcripts.conversations())
    assert len(transcripts.rollout_files()) == 220
    assert len(talks) == 890
    assert sum(len(talk.calls) > 1 for talk in talks) == 278
    assert sum(len(talk.calls) for talk in talks) == 2944
    assert sum(call.tokens is not None for talk in talks for call in talk.calls) == 10


def test_each_call_of_a_transcript_begins_with_all_that_was_said_before() -> None:
    for talk in transcripts.conversations():
        for before, after in zip(talk.calls, talk.calls[1:], strict=False):
            said = (*before.request_items, *before.output_items)
            assert after.request_items[: len(said)] == said
            assert after.continues


def test_real_messages_of_every_dialect_hash_alike() -> None:
    dialects = set()
    for messages in transcripts.message_lists():
        for name in ("assistant_fingerprint", "conversation_digest"):
            assert ours(getattr(fingerprint, name), messages) == gyms(getattr(gym_fingerprint, name), messages)
        dialects |= {key for message in messages for key in ("tool_calls", "call_id") if message.get(key)}
    assert dialects == {"tool_calls", "call_id"}


def test_real_tool_arguments_canonicalize_alike() -> None:
    seen = 0
    for messages in transcripts.message_lists():
        for arguments in (one["arguments"] for one in messages if one.get("type") == "function_call"):
            seen += 1
            canonical = fingerprint.canonicalize_tool_arguments(arguments)
            assert canonical == gym_fingerprint.canonicalize_tool_arguments(arguments)
    assert seen == 3038


def test_real_responses_are_taken_apart_alike() -> None:
    found = 0
    for _, row in transcripts.rows():
        payload = row.get("response") or {}
        items = ours(responses.response_to_output_items, payload)
        assert items == gyms(gym_records.response_to_output_items, payload)
        assert ours(responses.strip_token_fields, items) == gyms(gym_records.strip_token_fields, items)
        tokens = ours(responses.extract_token_fields, payload)
        assert tokens == gyms(gym_records.extract_token_fields, payload)
        found += isinstance(tokens, dict)
    assert found == 12


def test_real_calls_stamped_by_either_side_are_the_same_bytes() -> None:
    for number, talk in enumerate(transcripts.conversations()):
        call = talk.calls[-1]
        fields = {
            "rollout_id": f"task-{number}",
            "model_call_id": talk.source,
            "prompt_token_ids": call.tokens.prompt_token_ids if call.tokens else [number, 1],
            "generation_token_ids": call.tokens.generation_token_ids if call.tokens else [2],
            "generation_log_probs": call.tokens.generation_log_probs if call.tokens else [-1 / (number + 1)],
            "output_items": list(call.output_items),
        }
        entry, gym_entry = records.parse_entry(fields), gym_records.TokenEntry(**fields)
        stamps.stamp_continuation(stamps.stamp_lineage(entry, None), list(call.request_items))
        gym_lineage.stamp_continuation(gym_records.stamp_lineage(gym_entry, None), list(call.request_items))
        expected = orjson.dumps(gym_entry.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)
        assert canonical(entry) == canonical(gym_entry) == expected


# Generated input: mostly what a server would send, with something odd now and then


def mostly(sound: st.SearchStrategy[Any], *odd: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 24).flatmap(lambda chance: sound if chance or not odd else st.one_of(*odd))


texts = mostly(st.one_of(st.text(max_size=8), st.sampled_from(["", "a", "\u00e9\U0001f642"])), st.just("\ud800"))
integers = mostly(st.integers(-(2**63), 2**64 - 1), st.integers())
scalars = st.one_of(st.none(), st.booleans(), integers, st.floats(), st.sampled_from([1e22, -0.0]), texts)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
identities = st.one_of(st.none(), st.sampled_from(["call_1", "", "c2", 7]))
names = st.sampled_from(["look", "", "weather__look", None, 3])


@st.composite
def json_texts(draw: st.DrawFn) -> str:
    """JSON as harnesses write it: any spacing, order and escaping; sometimes cut short, sometimes no JSON at all."""
    text = json.dumps(
        draw(values),
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 1])),
        separators=draw(st.sampled_from([None, (",", ":"), (" , ", " : ")])),
    )
    cut = draw(st.sampled_from([0, 0, 0, 1]))
    odd = draw(st.sampled_from(["", "", " ", "\ufeff", "\x00", "1"]))
    return odd + text[: len(text) - cut]


arguments = st.one_of(values, json_texts(), st.sampled_from(['{"a":1,"a":2}', "[NaN,1e999]", "1_0", "0x1", "9" * 5000]))
text_blocks = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "input_text", "output_text", "", None]), "text": mostly(texts, scalars)},
    optional={"id": texts},
)
media_blocks = st.fixed_dictionaries({"type": st.sampled_from(["input_image", "thinking", 5]), "data": values})
use_blocks = st.fixed_dictionaries(
    {"type": st.just("tool_use")}, optional={"id": identities, "name": names, "input": arguments}
)
result_blocks = st.fixed_dictionaries(
    {"type": st.just("tool_result")}, optional={"tool_use_id": identities, "id": identities, "content": values}
)
blocks = mostly(st.one_of(text_blocks, media_blocks, use_blocks, result_blocks, texts), values)
contents = mostly(st.one_of(st.none(), texts, st.lists(blocks, max_size=4)), values)
functions = st.one_of(st.none(), st.fixed_dictionaries({}, optional={"name": names, "arguments": arguments}))
calls = st.one_of(
    st.none(), st.fixed_dictionaries({}, optional={"id": identities, "function": mostly(functions, scalars)})
)
roles = st.sampled_from(["user", "assistant", "assistant", "tool", "system", None, 5])
messages = st.one_of(
    st.fixed_dictionaries(
        {"role": roles, "content": contents},
        optional={
            "type": st.just("message"),
            "tool_calls": mostly(st.lists(mostly(calls, scalars), max_size=2), scalars),
            "tool_call_id": identities,
        },
    ),
    st.fixed_dictionaries(
        {"type": st.just("function_call"), "name": names, "arguments": arguments},
        optional={"call_id": identities, "id": identities, "namespace": names, "content": contents},
    ),
    st.fixed_dictionaries(
        {"type": st.just("function_call_output"), "output": values}, optional={"call_id": identities, "id": identities}
    ),
    st.fixed_dictionaries({"type": st.just("reasoning"), "summary": values}),
)


@thorough
@given(st.lists(mostly(messages, scalars), max_size=4))
def test_generated_conversations_hash_alike(conversation: list[Any]) -> None:
    for name in ("assistant_fingerprint", "conversation_digest"):
        assert ours(getattr(fingerprint, name), conversation) == gyms(getattr(gym_fingerprint, name), conversation)


@thorough
@given(arguments)
def test_generated_arguments_canonicalize_alike(value: Any) -> None:
    expected = gyms(gym_fingerprint.canonicalize_tool_arguments, value)
    assert ours(fingerprint.canonicalize_tool_arguments, value) == expected


@thorough
@given(st.lists(st.one_of(st.integers(0, 200_000), st.integers(-3, 2**65)), max_size=20))
def test_generated_token_ids_have_the_same_digest(ids: list[int]) -> None:
    assert ours(digests.compute_digest, ids) == gyms(gym_records.compute_digest, ids)


carriers = st.fixed_dictionaries({name: st.just([1]) for name in responses.TOKEN_ARRAYS}, optional={"type": texts})
partial = st.fixed_dictionaries({}, optional=dict.fromkeys(responses.TOKEN_FIELDS, st.sampled_from([None, [], [1]])))
items = mostly(st.fixed_dictionaries({"content": contents}), carriers, partial, scalars)
thoughts = st.fixed_dictionaries(
    {"type": st.sampled_from(["thinking", "redacted_thinking", "text"])},
    optional={"thinking": scalars, "data": scalars},
)
choices = mostly(
    st.fixed_dictionaries({"message": st.one_of(st.none(), items, carriers)}), st.none(), st.just({}), scalars
)
payloads = st.one_of(
    st.fixed_dictionaries({"output": st.lists(st.one_of(items, items, carriers), max_size=3)}),
    st.fixed_dictionaries({"choices": st.lists(choices, max_size=2)}, optional={"output": scalars}),
    st.fixed_dictionaries(
        {
            "type": st.just("message"),
            "role": st.just("assistant"),
            "content": mostly(st.lists(mostly(thoughts, scalars), max_size=3), scalars),
        }
    ),
    st.dictionaries(st.sampled_from(["output", "choices", "type", "role", "content"]), scalars),
)


@thorough
@given(payloads)
def test_generated_responses_are_taken_apart_alike(payload: dict[str, Any]) -> None:
    items = ours(responses.response_to_output_items, payload)
    assert text_of(items) == text_of(gyms(gym_records.response_to_output_items, payload))
    stripped = ours(responses.strip_token_fields, items)
    assert text_of(stripped) == text_of(gyms(gym_records.strip_token_fields, items))
    tokens = ours(responses.extract_token_fields, payload)
    assert tokens == gyms(gym_records.extract_token_fields, payload)


token_ids = st.lists(mostly(st.integers(0, 2**64 - 1), st.sampled_from(["3", " 4 ", "1_0", "x", None])), max_size=4)
finite = mostly(
    st.floats(allow_nan=False, allow_infinity=False), st.integers(-5, 5), st.sampled_from(["-0.5", "", None])
)
parents = st.sampled_from(
    [
        {},
        {"parent_resolution": "root"},
        {"parent_resolution": "unresolved", "parent_resolution_reason": "no_match"},
        {"parent_resolution": "resolved", "parent_call_id": "c0"},
        {"parent_resolution": "resolved", "parent_call_id": "c0", "prompt_is_delta": True},
        {"parent_call_id": "c0"},
    ]
)
odd_parents = st.fixed_dictionaries(
    {},
    optional={
        "parent_resolution": st.sampled_from([None, "root", "resolved", "unresolved", "other", 1]),
        "parent_call_id": st.sampled_from([None, "", "c0", 5]),
        "prompt_is_delta": st.booleans(),
    },
)
flags = mostly(st.booleans(), st.sampled_from([1, "yes", "perhaps", None]))
lengths = mostly(st.integers(0, 5), st.sampled_from([None, -2, "3", 2.0, 2.5, True, 2**64]))
texts_or_none = st.one_of(st.none(), texts)
fields_of_entries = st.fixed_dictionaries(
    {
        "rollout_id": texts,
        "model_call_id": mostly(texts, scalars),
        "prompt_token_ids": mostly(token_ids, token_ids.map(tuple)),
        "output_items": st.lists(st.dictionaries(texts, values, max_size=2), max_size=2),
    },
    optional={
        "schema_version": mostly(st.just(1), st.sampled_from(["1", 1.0, True, 0, 2, None])),
        "routed_experts": values,
        "response_id": texts_or_none,
        "created_at": finite,
        "cum_len": lengths,
        "digest": texts_or_none,
        "continuation_context_len": lengths,
        "fingerprint_version": lengths,
        "prefix_requested": flags,
        "unknown": values,
        "\u00fcnknown": values,
    },
)


@st.composite
def entries(draw: st.DrawFn) -> dict[str, Any]:
    fields = {**draw(fields_of_entries), **draw(mostly(parents, odd_parents)), "generation_token_ids": draw(token_ids)}
    count = len(fields["generation_token_ids"])
    fields["generation_log_probs"] = draw(mostly(st.lists(finite, min_size=count, max_size=count), st.lists(finite)))
    last = len(fields["output_items"]) - 1
    fields["token_item_index"] = draw(mostly(st.just(last) if last >= 0 else st.none(), st.integers(-1, 2)))
    return fields


@thorough
@given(entries())
def test_generated_entries_are_the_same_bytes_or_refused_by_both(fields: dict[str, Any]) -> None:
    expected = gyms(gym_bytes, fields)
    assert ours(our_bytes, fields) == expected
    if expected != REFUSED:
        assert canonical(gym_records.TokenEntry(**fields)) == expected
        assert our_bytes(orjson.loads(expected)) == expected


CALL = {
    "rollout_id": "task-0",
    "model_call_id": "call-1",
    "prompt_token_ids": [1],
    "generation_token_ids": [2, 3],
    "generation_log_probs": [-0.5, -0.25],
}
HARMFUL: dict[str, dict[str, Any]] = {
    "negative id": {"prompt_token_ids": [-1]},
    "boolean id": {"prompt_token_ids": [True]},
    "integral float as id": {"generation_token_ids": [2.0, 3.0]},
    "negative id as text": {"prompt_token_ids": ["-1"]},
    "set of ids": {"prompt_token_ids": {1, 2}},
    "NaN log prob": {"generation_log_probs": [math.nan, 0.0]},
    "infinite log prob": {"generation_log_probs": [-math.inf, 0.0]},
    "boolean log prob": {"generation_log_probs": [True, False]},
    "NaN time": {"created_at": math.nan},
}


@pytest.mark.parametrize("changes", HARMFUL.values(), ids=HARMFUL)
def test_what_nemo_gym_takes_and_would_train_or_read_wrong_is_refused(changes: dict[str, Any]) -> None:
    assert gyms(gym_bytes, {**CALL, **changes}) != REFUSED
    assert ours(our_bytes, {**CALL, **changes}) == REFUSED


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("field", ["prompt_token_ids", "generation_log_probs"])
def test_nemo_gyms_own_entries_are_checked_as_ours_are(field: str) -> None:
    entry = gym_records.TokenEntry(**CALL)
    assert canonical(entry) == gym_bytes(CALL)
    setattr(entry, field, [math.nan, -1])
    with pytest.raises(Invalid, match=field):
        canonical(entry)


def test_nemo_gyms_own_entries_are_stamped_as_ours_are() -> None:
    request, status = [{"role": "user", "content": "a"}], gym_records.ParentResolutionStatus.RESOLVED
    expected, entry = gym_records.TokenEntry(**CALL), gym_records.TokenEntry(**CALL)
    gym_records.stamp_lineage(gym_lineage.stamp_continuation(expected, request), "c0", parent_resolution=status)
    stamps.stamp_lineage(stamps.stamp_continuation(entry, request), "c0", parent_resolution=status)
    assert entry == expected
    assert stamps.cumulative_tokens(entry) == gym_records.cumulative_tokens(expected)
