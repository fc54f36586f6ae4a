# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What an inference worker does with one admitted call: stage its token delta, then acknowledge it.

A face: it owns the order of those steps and that each call is completed once. Where rows are stored is the
sink's business, what a response looks like the adapter's. A failure to capture becomes ``capture_failed``
coordinates and a log line; it never fails the model call. Only misuse by the host raises.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from gym_objstore.errors import Invalid, Unusable
from gym_objstore.observing import Event, report
from gym_objstore.staged_calls import AdmittedCall, Generation, admit, failed_coords, seal, staged_coords
from gym_objstore.wire_staging import CaptureAdmission, CommitCoords, StagedCallRecord, StageResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class StagingSink(Protocol):
    """Where a worker's rows become durable. Called from many threads at once."""

    def stage(self, record: StagedCallRecord, *, attachments: Mapping[str, Any] | None = None) -> StageResult:
        """Store a row and all attachments in one durable write, or answer why nothing was stored."""


class CaptureAdapter(Protocol):
    """What is specific to an engine: where exact tokens go in a request and are found in a response."""

    def enter_prefix(self, request_payload: dict[str, Any], prefix_ids: list[int]) -> dict[str, Any]:
        """Put a continuation's exact prefix into the request, in place, and return it."""

    def extract_prompt_ids(self, response_payload: Any) -> list[int]:
        """Return the exact prompt token ids of the generation."""

    def extract_generation(self, response_payload: Any) -> tuple[list[int], list[float]]:
        """Return the generated token ids and the log probability of each."""

    def extract_extras(self, response_payload: Any) -> dict[str, Any] | None:
        """Return what else of the response belongs into the row."""


class ServingLayer(Protocol):
    """An inference server that captures when told how."""

    def install_token_capture(self, capture: RolloutTokenCapture) -> None:
        """Use this capture for every admitted call from now on."""


@dataclass(frozen=True, slots=True)
class ActiveCall(AdmittedCall):
    """An admitted call that is completed at most once, whichever thread tries."""

    _completion: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    @property
    def completed(self) -> bool:
        """Whether the call was completed or failed."""
        return self._completion.locked()

    def claim(self) -> None:
        """Make the caller the one that completes this call; every later caller gets ``Unusable``."""
        if not self._completion.acquire(blocking=False):
            raise Unusable(f"the call was already completed, {self.where}", kind="call_completed")


class RolloutTokenCapture:
    """Stages the exact token delta of every admitted call before its response goes out.

    Safe to use from many threads. ``weight_version_fn`` is asked at admission.
    """

    def __init__(
        self, *, sink: StagingSink, weight_version_fn: Callable[[], int], adapter: CaptureAdapter | None = None
    ) -> None:
        self._sink = sink
        self._weight_version_fn = weight_version_fn
        self._adapter = adapter

    @property
    def adapter(self) -> CaptureAdapter | None:
        """The engine's adapter, if calls may be completed from responses."""
        return self._adapter

    def begin_call(
        self,
        admission: CaptureAdmission,
        *,
        prefix_token_ids: Sequence[int] | None = None,
        stream: bool = False,
        weight_version: int | None = None,
    ) -> ActiveCall:
        """Admit a call and stamp it with the policy's version: the engine's if given, else the provider's.

        ``prefix_token_ids`` is the resolved prefix of a continuation: needed where the admission names a
        ``staging_chain`` only, else the same as the admission's own.
        Raises: ``Invalid`` for a streaming call, a prefix that is not the admission's, or a bad version.
        """
        if not isinstance(admission, CaptureAdmission):
            raise Invalid(
                f"admission must be a CaptureAdmission, type={type(admission).__name__}", kind="bad_admission"
            )
        if stream:
            reason = f"token capture takes complete responses only, model_call_id={admission.model_call_id}"
            raise Invalid(reason, kind="streaming_unsupported", hint="request the engine's answer without streaming")
        version = self._weight_version_fn() if weight_version is None else weight_version
        call = admit(admission, version, prefix_token_ids)
        return ActiveCall(call.admission, call.weight_version, call.prefix_token_ids)

    def complete_call(  # noqa: PLR0913 - the keywords that engine hosts written for nemo-gym pass
        self,
        call: ActiveCall,
        *,
        prompt_token_ids: Sequence[int],
        generated_token_ids: Sequence[int],
        generated_logprobs: Sequence[float],
        extras: dict[str, Any] | None = None,
        attachments: Mapping[str, Any] | None = None,
    ) -> CommitCoords:
        """Stage a call's delta with its attachments and return its coordinates.

        Returns when: the sink says that the row is durable, or that it is not, or capture failed here.
        Repeating: raises ``Unusable``; a call is completed once.
        """
        call.claim()
        generation = Generation(prompt_token_ids, generated_token_ids, generated_logprobs, extras)
        return self._acknowledged(call, lambda: generation, attachments)

    def complete_call_from_response(
        self, call: ActiveCall, response_payload: Any, *, attachments: Mapping[str, Any] | None = None
    ) -> CommitCoords:
        """Complete a call from the engine's own response, as ``complete_call`` does."""
        adapter = self._adapter
        if adapter is None:
            raise Invalid("completing a call from a response needs an adapter", kind="no_adapter")
        call.claim()
        return self._acknowledged(call, lambda: _extracted(adapter, response_payload), attachments)

    def fail_call(self, call: ActiveCall, *, reason: str) -> CommitCoords:
        """Give up on a call that was not staged and return coordinates that say so. Repeating raises ``Unusable``."""
        call.claim()
        event = Event("uncaptured", *call.ids, kind="engine_failed", detail=reason)
        report(event, "token capture failed, %s, reason=%s", call.where, reason)
        return failed_coords(call)

    def _acknowledged(
        self, call: ActiveCall, generation: Callable[[], Generation], attachments: Mapping[str, Any] | None
    ) -> CommitCoords:
        try:
            record = seal(call, generation())
            result = self._stage(record, attachments)
        except Exception:  # noqa: BLE001 - the adapter and the sink are foreign code; no failure of theirs fails the call
            event = Event("uncaptured", *call.ids, kind="seal_failed")
            report(event, "token capture failed, %s", call.where, exc_info=True)
            return failed_coords(call)
        if not result.ok or result.staging_key is None:
            event = Event("uncaptured", *call.ids, kind="stage_failed", detail=str(result.error))
            report(event, "the staging sink rejected the call, %s, error=%s", call.where, result.error)
            return failed_coords(call)
        return staged_coords(record, result.staging_key)

    def _stage(self, record: StagedCallRecord, attachments: Mapping[str, Any] | None) -> StageResult:
        # A sink that knows no attachments must fail when there are some, and must not see the keyword otherwise.
        given = {} if attachments is None else {"attachments": attachments}
        result = self._sink.stage(record, **given)
        if not isinstance(result, StageResult):
            raise Invalid(f"stage must return a StageResult, type={type(result).__name__}", kind="bad_sink")
        return result


def install_capture(
    serving_layer: ServingLayer,
    *,
    sink: StagingSink,
    weight_version_fn: Callable[[], int],
    adapter: CaptureAdapter | None = None,
) -> RolloutTokenCapture:
    """Make a serving layer capture into a sink. Raises ``Invalid`` naming the part that cannot do its job."""
    _require_callable(sink, "stage")
    _require_callable(weight_version_fn, "__call__")
    _require_callable(serving_layer, "install_token_capture")
    capture = RolloutTokenCapture(sink=sink, weight_version_fn=weight_version_fn, adapter=adapter)
    serving_layer.install_token_capture(capture)
    return capture


def _require_callable(part: object, method: str) -> None:
    if not callable(getattr(part, method, None)):
        reason = f"token capture needs an object with the method {method}, type={type(part).__name__}"
        raise Invalid(reason, kind="bad_capture_part")


def _extracted(adapter: CaptureAdapter, response_payload: Any) -> Generation:
    token_ids, logprobs = adapter.extract_generation(response_payload)
    prompt = adapter.extract_prompt_ids(response_payload)
    return Generation(prompt, token_ids, logprobs, adapter.extract_extras(response_payload))
