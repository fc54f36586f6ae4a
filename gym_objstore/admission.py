# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Whether a call may be captured, and what the worker is told about it: the rules of external staging.

Owns the conversation a request stands for, the decision from what the ledger knows, and the request that
goes to the worker. Pure; who asks the ledger, and when, is for ``external_capture``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from gym_objstore.errors import Invalid
from gym_objstore.reasons import FailureReason
from gym_objstore.records import LineageResolution, ParentResolutionStatus
from gym_objstore.responses import response_to_output_items
from gym_objstore.wire_staging import CaptureAdmission

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gym_objstore.correlation import Dialect

    Item = dict[str, Any]

ADMISSION: Final = "ng_capture"
"""The request field that carries an admission to the worker."""

PREFIX_TOKENS: Final = "required_prefix_token_ids"
"""The request field that a worker fills with a continuation's exact prefix."""

_ENVELOPE_ROLE = "_ng_request_envelope"
_TOKENS_AS_IDS = {"logprobs": True, "top_logprobs": 0, "return_tokens_as_token_ids": True}
_ABSENT_FROM_WORKER = {"stream", "stream_options", ADMISSION, PREFIX_TOKENS}


Worker = Literal["vllm", "megatron"]
"""The kinds of inference workers, which look for an admission in different places."""


class Refusal(NamedTuple):
    """Why a call does not commit: the code that the ledger records, and the words for a log."""

    reason: FailureReason
    why: str


def request_items(dialect: Dialect, body: Mapping[str, Any]) -> list[Item]:
    """Return the conversation of a request, first the instructions and tools that shape its prompt.

    A text given as Responses ``input`` is the user's message. Anthropic thinking blocks become reasoning
    items, as they do in a response, and cache marks are left out: clients move both from turn to turn.
    Raises ``Invalid`` for a conversation that is no list of objects.
    """
    if dialect == "messages":
        turns = [item for turn in _turns(body, "messages") for item in _anthropic_items(turn)]
        tools = body.get("tools")
        uncached = [_uncached(tool) for tool in tools] if isinstance(tools, list) else tools
        return [*_envelope(_system_text(body.get("system")), uncached), *turns]
    turns = _turns(body, "messages" if dialect == "chat" else "input")
    return [*_envelope(body.get("instructions"), body.get("tools")), *turns]


def continues_elsewhere(body: Mapping[str, Any]) -> bool:
    """Whether the request continues a conversation that the server remembers and the request does not show."""
    return bool(body.get("previous_response_id") or body.get("conversation"))


def admission_for(
    rollout_id: str, model_call_id: str, *, resolution: LineageResolution, has_rows: bool
) -> CaptureAdmission | Refusal:
    """Return the admission of a call, or why it may not be captured and is served without.

    A call that continues nothing is a root. One that continues something unknown may be one only while the
    ledger has no rows: later it would train what the model said as if it had been asked.
    """
    match = resolution.match
    if match is None:
        if resolution.status == ParentResolutionStatus.ROOT or not has_rows:
            return CaptureAdmission(rollout_id=rollout_id, model_call_id=model_call_id, mode="text")
        return Refusal(FailureReason.UNRESOLVED_PARENT, f"no staged call is its parent: {resolution.reason}")
    try:
        return CaptureAdmission(
            rollout_id=rollout_id,
            model_call_id=model_call_id,
            parent_call_id=match.model_call_id,
            prev_len=match.prev_len,
            mode="token_in",
            staging_chain=match.staging_chain,
            parent_chain_hash=match.chain_hash or None,
        )
    except ValueError as error:
        why = f"its parent anchors no staged chain, parent_call_id={match.model_call_id}: {error}"
        return Refusal(FailureReason.UNRESOLVED_PARENT, why)


def worker_request(
    dialect: Dialect, body: Mapping[str, Any], admission: CaptureAdmission | None, *, worker: Worker = "vllm"
) -> dict[str, Any]:
    """Return the request for a complete answer, with the admission in it where this kind of worker looks for it.

    Capture fields that the client sent are left out: only the model server admits. Raises ``Invalid`` for an
    admitted request that a Megatron worker could not stage.
    """
    request = {name: value for name, value in body.items() if name not in _ABSENT_FROM_WORKER} | {"stream": False}
    if isinstance(offload := body.get("offload_params"), dict):
        request["offload_params"] = {name: value for name, value in offload.items() if name != ADMISSION}
    if admission is None:
        return request
    if worker == "megatron":
        return request | _for_megatron(body, admission)
    request[ADMISSION] = admission.model_dump(mode="json")
    if dialect == "chat":
        request |= _TOKENS_AS_IDS
    if admission.mode == "token_in":
        request[PREFIX_TOKENS] = list(admission.required_prefix_token_ids)
    return request


def _for_megatron(body: Mapping[str, Any], admission: CaptureAdmission) -> dict[str, Any]:
    """Return what a Megatron worker needs: it takes the admission from the parameters it hands to its stager."""
    if body.get("n") not in (None, 1):
        raise Invalid(f"a Megatron worker stages one choice, n={body['n']!r}", kind="bad_message")
    offload = {} if body.get("offload_params") is None else body["offload_params"]
    if not isinstance(offload, dict):
        raise Invalid(f"offload_params must be an object, type={type(offload).__name__}", kind="bad_message")
    said = {**offload, ADMISSION: admission.model_dump(mode="json")}
    return {"offload_params": said, "logprobs": True, "top_logprobs": 0}


def _turns(body: Mapping[str, Any], field: str) -> list[Item]:
    given = body.get(field)
    if isinstance(given, str) and field == "input":
        return [{"role": "user", "content": given}]
    if given is not None and not isinstance(given, list):
        raise Invalid(f"{field} must be a list, type={type(given).__name__}", kind="bad_message")
    turns = [turn for turn in given or () if turn is not None]
    for turn in turns:
        if not isinstance(turn, dict):
            raise Invalid(f"{field} must hold objects, type={type(turn).__name__}", kind="bad_message")
    return turns


def _envelope(instructions: Any, tools: Any) -> list[Item]:
    """Return what shapes the prompt beside the turns as one item of a role that no dialect has."""
    if not instructions and not tools:
        return []
    text = json.dumps({"instructions": instructions, "tools": tools}, sort_keys=True)
    return [{"role": _ENVELOPE_ROLE, "content": text}]


def _system_text(system: Any) -> Any:
    if not isinstance(system, list):
        return system
    return "\n".join(str(block.get("text") or "") for block in system if isinstance(block, dict))


def _anthropic_items(turn: Item) -> list[Item]:
    content = turn.get("content")
    if not isinstance(content, list):
        return [turn]
    blocks = [_uncached(block) for block in content]
    if turn.get("role") == "assistant":
        return response_to_output_items({"type": "message", "role": "assistant", "content": blocks})
    return [{**turn, "content": blocks}]


def _uncached(block: Any) -> Any:
    return {key: value for key, value in block.items() if key != "cache_control"} if isinstance(block, dict) else block
