# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""An inference worker that stages the exact tokens of its calls, with arrays attached, before it answers.

Run: ``python examples/inference_worker.py --url s3://bucket/rl --run-id run-7 --rollout-id 0-0``

Shows a root call and its continuation, as a Gym model server in external staging admits them. A tiny engine stands
for vLLM or Megatron. Each row and its arrays are one object in the bucket, durable before the answer leaves.
Prints each call's coordinates, which the engine's answer carries, and what a trainer reads at its staging key.
Run again, it stages nothing new: the same call has the same key.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from gym_objstore import RolloutTokenCapture, StagingSink, StagingSource, install_capture
from gym_objstore.wire_staging import CaptureAdmission, CommitCoords
from gym_objstore_vllm import VLLMCaptureAdapter


class Engine:
    """Generates behind a prefix and captures the calls that carry an admission."""

    def __init__(self, source: StagingSource) -> None:
        self._source = source

    def install_token_capture(self, capture: RolloutTokenCapture) -> None:
        """Capture admitted calls from now on."""
        self._capture = capture

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """Answer a request in vLLM's shape."""
        admission = CaptureAdmission.model_validate(body["ng_capture"])
        prefix = self._source.prefix(admission.staging_chain, parent_chain_hash=admission.parent_chain_hash)
        call = self._capture.begin_call(admission, prefix_token_ids=prefix or None)
        answer = generate([*prefix, *(len(word) for word in body["messages"][-1]["content"].split())])
        arrays = {
            "routed_experts": np.full((len(answer["prompt_token_ids"]), 2, 4), 7, np.uint8),  # tokens, layers, top k
            "media": {"pixel_values": np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3)},
        }
        coords = self._capture.complete_call_from_response(call, answer, attachments=arrays)
        return {**answer, "ng_commit_coords": coords.model_dump(mode="json")}


def generate(prompt: list[int]) -> dict[str, Any]:
    """Return three tokens."""
    exact = {"generation_token_ids": [101, 102, 103], "generation_log_probs": [-0.1, -0.2, -0.3]}
    return {"prompt_token_ids": prompt, "choices": [{"message": {"role": "assistant", "content": "Yes.", **exact}}]}


def continuation(parent: CommitCoords) -> CaptureAdmission:
    """Return the admission of a call whose history ends in the parent's answer: which rows hold its prefix."""
    return CaptureAdmission(
        rollout_id=parent.rollout_id,
        model_call_id="call-2",
        mode="token_in",
        parent_call_id=parent.model_call_id,
        prev_len=parent.cum_len,
        staging_chain=(str(parent.staging_key),),
        parent_chain_hash=parent.chain_hash,
    )


def main() -> None:
    """Serve two calls and read their rows back."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="default: GYM_OBJSTORE_URL")
    parser.add_argument("--run-id", help="default: GYM_OBJSTORE_RUN_ID")
    parser.add_argument("--rollout-id", default="0-0")
    asked = parser.parse_args()
    sink, source = StagingSink(asked.url, asked.run_id), StagingSource(asked.url, asked.run_id)
    engine = Engine(source)
    install_capture(engine, sink=sink, weight_version_fn=lambda: 7, adapter=VLLMCaptureAdapter())

    admission = CaptureAdmission(rollout_id=asked.rollout_id, model_call_id="call-1", mode="text")
    for question in ("Is it warm in Paris?", "And tomorrow?"):
        body = {"messages": [{"role": "user", "content": question}], "ng_capture": admission.model_dump(mode="json")}
        coords = CommitCoords.model_validate(engine.complete(body)["ng_commit_coords"])
        if coords.staging_key is None:
            raise SystemExit("the call was answered and not captured; the log says why")
        print("coordinates", json.dumps(coords.model_dump(mode="json")))
        (row,) = source.fetch([coords.staging_key])
        arrays = source.load_attachments(coords.staging_key)
        print("tokens", list(row.token_ids_delta), "mask", list(row.token_mask_delta))
        print("experts", arrays["routed_experts"].shape, "pixels", arrays["media"]["pixel_values"].tolist())
        admission = continuation(coords)
    sink.close_now()
    source.close_now()


if __name__ == "__main__":
    main()
