# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Where a Megatron Inference payload carries exact tokens, for capture on the inference worker.

Owns the names and shapes of Megatron's offloaded payloads, which are objects or mappings with the same
fields; needs no Megatron to be installed. Payloads of any other shape raise ``Invalid``, which fails the
capture, not the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gym_objstore.errors import Invalid

__all__ = ["MegatronCaptureAdapter"]


class MegatronCaptureAdapter:
    """Reads offloaded payloads."""

    def enter_prefix(self, request_payload: dict[str, Any], prefix_ids: list[int]) -> dict[str, Any]:
        """Put a continuation's exact prefix into the request, in place, and return it."""
        request_payload["required_prefix_token_ids"] = list(prefix_ids)
        return request_payload

    def extract_prompt_ids(self, response_payload: Any) -> list[int]:
        """Return the prompt token ids."""
        return _token_ids(response_payload, "prompt_token_ids")

    def extract_generation(self, response_payload: Any) -> tuple[list[int], list[float]]:
        """Return the generated token ids and the log probability of each."""
        token_ids = _token_ids(response_payload, "generated_token_ids")
        logprobs = _logprobs(response_payload, "generated_log_probs")
        if len(token_ids) != len(logprobs):
            raise _invalid(f"{len(token_ids)} generated tokens have {len(logprobs)} log probabilities")
        return token_ids, logprobs

    def extract_extras(self, response_payload: Any) -> None:  # noqa: ARG002 - the signature of every adapter
        """Return nothing: Megatron's routes are one row short of the tokens, which extras cannot say."""
        return


def _token_ids(payload: Any, name: str) -> list[int]:
    values = _sequence(payload, name)
    if not set(map(type, values)) <= {int}:
        raise _invalid(f"{name} must hold integers")
    return list(values)


def _logprobs(payload: Any, name: str) -> list[float]:
    values = _sequence(payload, name)
    if any(isinstance(value, bool) or not isinstance(value, (int, float)) for value in values):
        raise _invalid(f"{name} must hold numbers")
    return [float(value) for value in values]


def _sequence(payload: Any, name: str) -> Sequence[Any]:
    values = payload.get(name) if isinstance(payload, Mapping) else getattr(payload, name, None)
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise _invalid(f"{name} must be a sequence, type={type(values).__name__}")
    return values


def _invalid(reason: str) -> Invalid:
    return Invalid(f"not a Megatron payload to capture: {reason}", kind="bad_engine_response")
