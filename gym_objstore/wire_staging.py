# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The records between model server, inference worker and staging store: schema 2 of nemo-gym 0.7.0.

Owns their shapes and what must hold inside one record; the verdicts are those of nemo-gym on the same
bytes. The ledger's records are in ``wire_ledger``; what must hold between records is for ``linearize``.
Unknown fields are refused, so a newer writer masks its rollouts instead of having columns dropped.
"""

from __future__ import annotations

from itertools import compress
from operator import not_
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from gym_objstore.errors import Invalid
from gym_objstore.staged_columns import PackedColumns, pack_columns
from gym_objstore.staging_digests import EMPTY_EXTRAS_DIGEST, compute_extras_digest, compute_staging_digest

if TYPE_CHECKING:
    from collections.abc import Mapping

CaptureMode = Literal["token_in", "text"]
CaptureDisposition = Literal["staged", "capture_failed"]
Identifier = Annotated[StrictStr, Field(min_length=1)]
Count = Annotated[StrictInt, Field(ge=0)]
DigestHex = Annotated[StrictStr, Field(pattern=r"^[0-9a-f]{64}$")]


class WireRecord(BaseModel):
    """The root of all staging records: frozen, nothing unknown, no NaN or infinity, no contents in messages."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True, hide_input_in_errors=True)

    schema_version: Literal[2] = 2


class DigestedRecord(WireRecord):
    """A record that carries digests, and by which version of their layouts."""

    digest_version: Literal[2] = 2
    extras_digest_version: Literal[1] = 1


class _Placed(WireRecord):
    """A call's place in its rollout: a root, or the continuation of one parent.

    ``prev_len`` counts the tokens before this call's own. Subclasses extend ``check`` by their own rules.
    """

    model_call_id: Identifier
    parent_call_id: Identifier | None = None
    prev_len: Count

    def check(self) -> None:
        """Raise ``Invalid`` where the fields contradict each other."""
        if (self.parent_call_id is None) != (self.prev_len == 0):
            raise Invalid("a root has prev_len 0 and no parent_call_id, a continuation has both")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.check()
        return self


class _Entered(_Placed):
    """How the prompt of a call reached the engine: roots as text, continuations behind exact token ids."""

    mode: CaptureMode

    def check(self) -> None:
        """Also refuse a mode that is not the place's."""
        super().check()
        if self.mode != ("text" if self.parent_call_id is None else "token_in"):
            raise Invalid("a root has mode text, a continuation has mode token_in")


class _Spanned(_Placed):
    """The tokens one call added to its sequence, and the policy that generated them."""

    delta_len: Count
    cum_len: Count
    weight_version: Count

    def check(self) -> None:
        """Also refuse lengths that do not add up."""
        super().check()
        if self.cum_len != self.prev_len + self.delta_len:
            raise Invalid("cum_len must be prev_len + delta_len")


class StagedCall(_Entered, _Spanned, DigestedRecord):
    """What a staged row and its ledger row both say; ``linearize`` compares them field by field."""

    digest: DigestHex
    extras_digest: DigestHex
    chain_hash: DigestHex
    cumulative_hash: DigestHex

    def check(self) -> None:
        """Also refuse an empty delta."""
        super().check()
        if self.delta_len == 0:
            raise Invalid("a staged call adds at least one token, delta_len=0")


class CaptureAdmission(_Entered):
    """The model server's word to the worker: stage this call, behind this exact prefix.

    A continuation carries its prefix inline or names, in ``staging_chain``, the staged rows from the root
    to the parent whose deltas make it up.
    """

    rollout_id: Identifier
    prev_len: Count = 0
    required_prefix_token_ids: tuple[Count, ...] = ()
    staging_chain: tuple[str, ...] = ()
    parent_chain_hash: DigestHex | None = None

    def check(self) -> None:
        """Also refuse a prefix that is not the place's."""
        super().check()
        if (self.parent_call_id is None) != (self.parent_chain_hash is None):
            raise Invalid("a continuation has its parent's parent_chain_hash, a root has none")
        if self.parent_call_id is None and self.staging_chain:
            raise Invalid("a root has no staging_chain")
        # A named chain makes the inline prefix optional; a prefix of the wrong length is then refused on use.
        named = bool(self.staging_chain)
        if not named and len(self.required_prefix_token_ids) != self.prev_len:
            raise Invalid(
                "required_prefix_token_ids must hold prev_len token ids unless staging_chain names the prefix"
            )


def _unless_packed(value: Any, validate: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """Look at each number of a column, unless the columns were packed: an array holds nothing else."""
    return tuple(value) if isinstance(info.context, PackedColumns) else validate(value)


_Column = WrapValidator(_unless_packed)


class StagedCallBaseSnapshot(StagedCall):
    """One call's token columns, all of ``delta_len``, without the extras.

    ``token_mask_delta`` is 1.0 for generated tokens and 0.0 for prompt tokens, whose log probability is 0.0.
    A snapshot exists only with a matching ``digest``; whether extras match ``extras_digest`` is for whoever
    loads them to verify.
    """

    # Neither a field nor a private attribute: a slot is not compared, dumped, pickled, nor copied beside new fields.
    __slots__ = ("_packed",)

    rollout_id: Identifier
    token_ids_delta: Annotated[tuple[StrictInt, ...], _Column]
    token_mask_delta: Annotated[tuple[StrictFloat, ...], _Column]
    generation_log_probs_delta: Annotated[tuple[StrictFloat, ...], _Column]
    extras_digest: DigestHex = EMPTY_EXTRAS_DIGEST

    @classmethod
    def unpack(cls, fields: Mapping[str, Any], packed: PackedColumns) -> Self:
        """Return the record of packed columns and all its other fields; raise ``ValidationError`` if it is none."""
        return cls.model_validate({**fields, **packed.unpacked()}, context=packed)

    @property
    def packed(self) -> PackedColumns:
        """The three columns as machine numbers, which are kept from the record's validation."""
        kept: PackedColumns | None = getattr(self, "_packed", None)
        return self._pack() if kept is None else kept

    def recompute_digest(self) -> str:
        """Return the digest of the fields as they are; raise ``Invalid`` if they are no staged call."""
        return self._digest(self._pack())

    def _pack(self) -> PackedColumns:
        return pack_columns(self.token_ids_delta, self.token_mask_delta, self.generation_log_probs_delta)

    def _digest(self, packed: PackedColumns) -> str:
        if any(len(column) != self.delta_len for column in packed):
            raise Invalid("token ids, masks and log probabilities must each hold delta_len values")
        if packed.carried is None:
            self._require_masked()
        return compute_staging_digest({**vars(self), **packed._asdict()})

    def _require_masked(self) -> None:
        if not set(self.token_mask_delta) <= {0.0, 1.0}:
            raise Invalid("token_mask_delta must hold 0.0 and 1.0 only")
        if any(compress(self.generation_log_probs_delta, map(not_, self.token_mask_delta))):
            raise Invalid("prompt tokens must have log probability 0.0")

    @model_validator(mode="after")
    def _sealed(self, info: ValidationInfo) -> Self:
        packed = info.context if isinstance(info.context, PackedColumns) else self._pack()
        if self.digest != self._digest(packed):
            raise Invalid("digest does not cover the staged fields")
        object.__setattr__(self, "_packed", packed)
        return self


class StagedCallRecord(StagedCallBaseSnapshot):
    """One call's token delta with its extras, as the worker hands it to a staging sink."""

    extras: dict[str, Any] | None = None

    @classmethod
    def seal(cls, **fields: Any) -> Self:
        """Return the record of these fields, both digests computed."""
        draft = cls.model_construct(**fields, extras_digest=compute_extras_digest(fields.get("extras")))
        packed = pack_columns(*(fields[name] for name in PackedColumns._fields))
        digest = compute_staging_digest({**vars(draft), **packed._asdict()})
        return cls.model_validate({**vars(draft), "digest": digest}, context=packed)

    @model_validator(mode="after")
    def _extras_sealed(self) -> Self:
        if self.extras_digest != compute_extras_digest(self.extras):
            raise Invalid("extras_digest does not cover the extras")
        return self


class StagedCallSnapshot(StagedCallRecord):
    """A staged record as a source read it back, extras included."""


class StageResult(WireRecord):
    """A staging sink's answer: a key once the row is durable, or why nothing was stored."""

    ok: bool
    staging_key: Identifier | None = None
    error: str | None = None

    @model_validator(mode="after")
    def _answered(self) -> Self:
        if self.staging_key is None if self.ok else not self.error:
            raise Invalid("a successful result has a staging_key, a failed one has an error")
        return self


class CommitCoords(_Spanned, DigestedRecord):
    """The worker's acknowledgement of one call: where its row is, or that capture failed."""

    rollout_id: Identifier
    disposition: CaptureDisposition = "staged"
    digest: DigestHex | None = None
    extras_digest: DigestHex | None = None
    staging_key: Identifier | None = None
    chain_hash: DigestHex | None = None
    cumulative_hash: DigestHex | None = None

    def check(self) -> None:
        """Also refuse a row on failed coordinates, and staged ones without."""
        super().check()
        staged = self.disposition == "staged"
        row = (self.digest, self.extras_digest, self.staging_key, self.chain_hash, self.cumulative_hash)
        if any((value is not None) != staged for value in row) or (self.delta_len > 0) != staged:
            raise Invalid(
                "staged coordinates carry a delta, a staging_key and four digests, failed ones carry none of them"
            )
