# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Write ``staging-digests.json`` and ``staging-records.json`` from the installed nemo-gym.

The files pin the wire format against this package and against later versions of nemo-gym: run this again
only to add cases, and look at the difference. Usage: ``python tests/vectors/generate_staging.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nemo_gym.token_id_capture import staging

HERE = Path(__file__).parent

TOKEN_IDS = [[], [0], [1, 2, 3], [2**64 - 1, 0, 151643], list(range(300))]

EXTRAS = [
    None,
    {},
    {"a": None},
    {"true": True, "false": False, "one": 1, "float": 1.0},
    {"least": -(2**63), "greatest": 2**63 - 1},
    {"negative_zero": -0.0, "tiny": 5e-324, "third": 1 / 3},
    {"text": "", "unicode": "é\u0000中\U0001f600", "é": "e", "z": "z", "\U0001f600": 1, "\uffff": 2},
    {"nested": [[], {}, [None, [True, {"k": [1.5]}]]]},
    {"routed_experts": "nrlre1:int16:2x1x2:AQACAAMABAA="},
    {"media_spans": [{"start": 3, "length": 576, "modality": "image"}]},
]

PROMPT, GENERATED = [11, 12, 151643], [21, 2**64 - 1]


def _digests() -> dict[str, Any]:
    parents = [None, "0" * 64, staging.compute_chain_hash(None, [1, 2, 3])]
    return {
        "empty_extras_digest": staging.EMPTY_EXTRAS_DIGEST,
        "cumulative": [{"token_ids": ids, "hash": staging.hash_token_ids(ids)} for ids in TOKEN_IDS],
        "chain": [
            {"parent": parent, "token_ids": ids, "hash": staging.compute_chain_hash(parent, ids)}
            for parent in parents
            for ids in TOKEN_IDS[1:4]
        ],
        "extras": [{"extras": extras, "digest": staging.compute_extras_digest(extras)} for extras in EXTRAS],
    }


class _Kept:
    def __init__(self) -> None:
        self.records: list[staging.StagedCallRecord] = []

    def stage(self, record: staging.StagedCallRecord, *, attachments: object = None) -> staging.StageResult:
        del attachments
        self.records.append(record)
        return staging.StageResult(ok=True, staging_key=f"{record.rollout_id}/{record.model_call_id}")


def _records() -> list[dict[str, Any]]:
    """Capture a root and its continuation with the real worker-side capture."""
    sink = _Kept()
    capture = staging.RolloutTokenCapture(sink=sink, weight_version_fn=lambda: 3)
    root = {"rollout_id": "rollout é", "model_call_id": "call-1", "mode": "text"}
    child = {**root, "model_call_id": "call-2", "mode": "token_in", "parent_call_id": "call-1"}
    cases = []
    prompt: list[int] = []
    for admission_fields in (root, child):
        if sink.records:
            last = sink.records[-1]
            inline = {
                "prev_len": last.cum_len,
                "required_prefix_token_ids": prompt,
                "parent_chain_hash": last.chain_hash,
            }
            admission_fields.update(inline)
        admission = staging.CaptureAdmission.model_validate(admission_fields)
        prompt = prompt + PROMPT
        generation = {
            "prompt_token_ids": prompt,
            "generated_token_ids": GENERATED,
            "generated_logprobs": [-0.1, -1e-40],
        }
        coords = capture.complete_call(capture.begin_call(admission), **generation, extras=EXTRAS[8])
        cases.append(
            {
                "admission": admission.model_dump(mode="json"),
                **generation,
                "extras": EXTRAS[8],
                "weight_version": 3,
                "record": sink.records[-1].model_dump(mode="json"),
                "coords": coords.model_dump(mode="json"),
            }
        )
        prompt = prompt + GENERATED
    return cases


def _write(name: str, value: object) -> None:
    text = json.dumps(value, indent=1, sort_keys=True)
    (HERE / name).write_text(text + "\n", encoding="ascii")


if __name__ == "__main__":
    _write("staging-digests.json", _digests())
    _write("staging-records.json", _records())
