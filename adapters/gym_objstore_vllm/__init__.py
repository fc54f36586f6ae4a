# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Where a vLLM chat completion carries exact tokens, for capture on the inference worker.

Owns the names and shapes of vLLM's payloads; needs no vLLM to be installed. Prefixes are resolved and rows
are stored elsewhere. Payloads of any other shape raise ``Invalid``, which fails the capture, not the call.
"""

from __future__ import annotations

import re
from typing import Any

from gym_objstore.errors import Invalid

__all__ = ["VLLMCaptureAdapter"]

_TOKEN_ID = re.compile(r"(?:token_id:)?([0-9]{1,20})")


class VLLMCaptureAdapter:
    """Reads responses with one choice, whose tokens are in its message or in its log probabilities."""

    def enter_prefix(self, request_payload: dict[str, Any], prefix_ids: list[int]) -> dict[str, Any]:
        """Put a continuation's exact prefix into the request, in place, and return it."""
        request_payload["required_prefix_token_ids"] = list(prefix_ids)
        return request_payload

    def extract_prompt_ids(self, response_payload: dict[str, Any]) -> list[int]:
        """Return the prompt token ids, from the response or else its message."""
        prompt = response_payload.get("prompt_token_ids")
        if prompt is None:
            prompt = _message(_choice(response_payload)).get("prompt_token_ids")
        return [_token_id(one) for one in _list(prompt, "prompt_token_ids")]

    def extract_generation(self, response_payload: dict[str, Any]) -> tuple[list[int], list[float]]:
        """Return the generated token ids and log probabilities, from the message or else ``logprobs.content``."""
        token_ids, logprobs = _generation(_choice(response_payload))
        if len(token_ids) != len(logprobs):
            raise _invalid(f"{len(token_ids)} generated tokens have {len(logprobs)} log probabilities")
        return [_token_id(one) for one in token_ids], [_logprob(one) for one in logprobs]

    def extract_extras(self, response_payload: dict[str, Any]) -> dict[str, Any] | None:
        """Return the message's ``routed_experts`` and the response's ``media_spans`` unchanged, if there are any.

        Spans say where in the expanded prompt media stood; a later call needs them to reuse the prefix.
        """
        extras: dict[str, Any] = {}
        routed_experts = _message(_choice(response_payload)).get("routed_experts")
        if routed_experts is not None:
            if not isinstance(routed_experts, (str, dict, list)):
                raise _invalid("routed_experts must be an envelope or nested lists")
            extras["routed_experts"] = routed_experts
        if "media_spans" in response_payload:
            spans = _list(response_payload["media_spans"], "media_spans")
            if not all(isinstance(span, dict) for span in spans):
                raise _invalid("media_spans must hold objects")
            extras["media_spans"] = spans
        return extras or None


def _choice(response: dict[str, Any]) -> dict[str, Any]:
    choices = _list(response.get("choices"), "choices")
    if len(choices) != 1 or not isinstance(choices[0], dict):
        raise _invalid(f"there must be one choice, choices={len(choices)}")
    return choices[0]


def _message(choice: dict[str, Any]) -> dict[str, Any]:
    return _object(choice.get("message"), "message")


def _generation(choice: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    message = _message(choice)
    if "generation_token_ids" in message and "generation_log_probs" in message:
        return (
            _list(message["generation_token_ids"], "generation_token_ids"),
            _list(message["generation_log_probs"], "generation_log_probs"),
        )
    content = _list(_object(choice.get("logprobs"), "logprobs").get("content"), "logprobs.content")
    if not all(isinstance(one, dict) for one in content):
        raise _invalid("logprobs.content must hold objects")
    return [one.get("token") for one in content], [one.get("logprob") for one in content]


def _object(value: object, what: str) -> dict[str, Any]:
    found = value or {}
    if not isinstance(found, dict):
        raise _invalid(f"{what} must be an object, type={type(found).__name__}")
    return found


def _list(value: object, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise _invalid(f"{what} must be a list, type={type(value).__name__}")
    return value


def _token_id(value: object) -> int:
    """Read an id given as a number, or as text the way ``return_tokens_as_token_ids`` writes it."""
    if type(value) is int:
        return value
    found = _TOKEN_ID.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise _invalid("every token must be an id; request return_tokens_as_token_ids")
    return int(found[1])


def _logprob(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _invalid(f"every log probability must be a number, type={type(value).__name__}")
    return float(value)


def _invalid(reason: str) -> Invalid:
    return Invalid(f"not a vLLM response to capture: {reason}", kind="bad_engine_response")
