# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""One call's training tokens as a record, and the answer to "which call does this request continue?".

Owns the shape of ``TokenEntry`` and what makes one fit to train on. Field for field the record of nemo-gym 0.7.0, with
more refused: whatever would train wrong tokens or could not be read back.
Filling in the lineage fields is for ``stamps``, the canonical bytes for ``sealing``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    FiniteFloat,
    ValidationError,
    ValidationInfo,
    WrapValidator,
    model_validator,
)

from gym_objstore.digests import are_token_ids
from gym_objstore.errors import Invalid

SCHEMA_VERSION: Final = 1
"""The only version of a token entry there is; a newer one is refused, as its unknown fields may change tokens."""

_PRINTED_BITS = 128


class ParentResolutionStatus(StrEnum):
    """What is known about a call's predecessor when it is admitted."""

    ROOT = "root"
    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"


@dataclass(frozen=True, slots=True)
class LineageMatch:
    """The one call a request was proven to continue.

    ``cumulative_token_ids`` is the parent's whole sequence, prompt and generation, with ``digest`` its digest; empty
    for a call staged by a worker, whose tokens lie under the keys of ``staging_chain`` (root first, parent last):
    ``prev_len`` of them, sealed by ``chain_hash``.
    """

    model_call_id: str
    cumulative_token_ids: tuple[int, ...]
    digest: str
    staging_chain: tuple[str, ...] = ()
    prev_len: int = 0
    chain_hash: str = ""


@dataclass(frozen=True, slots=True)
class LineageResolution:
    """One decision about a call's parent: a match if and only if resolved; ``reason`` is for diagnosis."""

    status: ParentResolutionStatus
    match: LineageMatch | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if (self.status == ParentResolutionStatus.RESOLVED) != (self.match is not None):
            reason = f"a resolution has a match exactly when it is resolved, status={self.status}"
            raise Invalid(reason, kind="bad_record")


def require_parent(status: ParentResolutionStatus | None, parent_call_id: str | None) -> None:
    """Raise ``Invalid`` unless the status and the parent's id say the same; without a status anything goes."""
    if status == ParentResolutionStatus.RESOLVED and not parent_call_id:
        raise Invalid("a resolved call must name its parent_call_id", kind="bad_record")
    unparented = status in (ParentResolutionStatus.ROOT, ParentResolutionStatus.UNRESOLVED)
    if unparented and parent_call_id is not None:
        reason = f"a call that is {status} must not name a parent_call_id, parent_call_id={parent_call_id!r}"
        raise Invalid(reason, kind="bad_record")


def _supported(version: int) -> int:
    if version > SCHEMA_VERSION:
        reason = f"the record is of a newer schema than this reader knows, schema_version={version}"
        raise Invalid(reason, kind="newer_schema", hint="upgrade gym_objstore")
    if version < SCHEMA_VERSION:
        raise Invalid(f"no such schema was ever written, schema_version={version}", kind="bad_record")
    return version


def _never(*types: type) -> BeforeValidator:
    """Refuse values of these types, which pydantic would turn into numbers."""

    def check(value: object) -> object:
        if isinstance(value, types):
            raise Invalid(f"must not be a {type(value).__name__}", kind="bad_record")
        return value

    return BeforeValidator(check)


_OWN: Final = object()
"""The context of a validation whose lists are nobody else's."""

_SOUND: Final = object()
"""The context of a validation that need not look into token arrays: they were looked at, and nobody keeps them."""


def _quickly(is_sound: Callable[[list[Any]], bool]) -> WrapValidator:
    """Take a list as it is if one fast look says it is sound; else let pydantic convert it or name the culprit.

    A list that may be the caller's is copied: callers go on filling theirs.
    """

    def check(value: object, convert: Callable[[object], list[Any]], info: ValidationInfo) -> list[Any]:
        if isinstance(value, list) and (info.context is _SOUND or is_sound(value)):
            return value if info.context is not None else value.copy()
        if isinstance(value, AbstractSet):
            raise Invalid("a set has no order", kind="bad_record")
        return convert(value)

    return WrapValidator(check)


def are_finite_floats(values: list[Any]) -> bool:
    """Tell in one pass whether these are plain floats, none of them NaN or infinite."""
    # A sum of finite numbers is finite unless it overflows, and costs a tenth of looking at each.
    return set(map(type, values)) <= {float} and (math.isfinite(sum(values)) or all(map(math.isfinite, values)))


# Integral floats are refused as ids: half precision rounds 151643 to 151552. Numbers as text are harmless.
TokenId = Annotated[int, Field(ge=0, lt=2**64), _never(bool, float)]
TokenIds = Annotated[list[TokenId], FailFast(), _quickly(are_token_ids)]
LogProbs = Annotated[list[Annotated[FiniteFloat, _never(bool)]], FailFast(), _quickly(are_finite_floats)]


class TokenEntry(BaseModel):
    """One model call: what it was asked and what it said in tokens, and where it stands in its rollout.

    Unknown fields are kept and written back. Not frozen, as ``stamps`` and nemo-gym fill in lineage after the fact:
    ``sealing.seal`` checks again what is to be stored.
    """

    model_config = ConfigDict(extra="allow")

    schema_version: Annotated[int, AfterValidator(_supported)] = SCHEMA_VERSION
    rollout_id: str
    model_call_id: str
    model: str = ""

    # The prompt is only the part after the parent's sequence where ``prompt_is_delta``.
    prompt_token_ids: TokenIds
    generation_token_ids: TokenIds
    generation_log_probs: LogProbs
    routed_experts: Any | None = None

    # What the model said, without token fields; the index names the item that carried them.
    output_items: list[dict[Any, Any]] = Field(default_factory=list)
    token_item_index: int | None = None
    response_id: str | None = None
    created_at: FiniteFloat = 0.0

    # ``cum_len`` and ``digest`` describe the whole sequence up to the end of this call, also for a delta.
    parent_call_id: str | None = None
    cum_len: int | None = None
    digest: str | None = None
    parent_resolution: ParentResolutionStatus | None = None

    # How a later request finds this call: its fingerprint, and the context it must begin with.
    continuation_fingerprint: str = ""
    continuation_context_len: int = 0
    continuation_context_digest: str = ""
    parent_resolution_reason: str = ""
    fingerprint_version: int | None = None

    prompt_is_delta: bool = False
    # Whether the engine was asked to start from the parent's exact tokens, and whether its prompt proves it did.
    prefix_requested: bool = False
    prefix_supplied: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        ids, probs, items = len(self.generation_token_ids), len(self.generation_log_probs), len(self.output_items)
        if ids != probs:
            reason = f"each generated token must have one log probability, tokens={ids}, log_probs={probs}"
            raise Invalid(reason, kind="bad_record")
        if self.token_item_index is not None and self.token_item_index not in range(items):
            reason = f"token_item_index is outside output_items, index={self.token_item_index}, items={items}"
            raise Invalid(reason, kind="bad_record")
        require_parent(self.parent_resolution, self.parent_call_id)
        if self.prompt_is_delta and self.parent_resolution != ParentResolutionStatus.RESOLVED:
            raise Invalid("a prompt that is a delta needs a resolved parent to be rebuilt from", kind="bad_record")
        return self


def parse_entry(mapping: Mapping[str, Any]) -> TokenEntry:
    """Return the entry of a record's plain fields, or raise ``Invalid`` naming the field and the position.

    Kind ``newer_schema`` if a newer writer wrote it, else ``bad_record``.
    """
    return _validated(mapping)


def stored_entry(record: dict[str, Any]) -> TokenEntry:
    """Return the entry of a record that was just read, whose lists it takes for its own; see ``parse_entry``."""
    return _validated(record, _OWN)


def require_consistent(fields: dict[str, Any]) -> None:
    """Raise ``Invalid`` unless these are the fields of an entry, whose token arrays were found sound before."""
    _validated(fields, _SOUND)


def _validated(mapping: Mapping[str, Any], context: object = None) -> TokenEntry:
    try:
        return TokenEntry.model_validate(mapping, context=context)
    except ValidationError as error:
        raise _refusal(error) from error


def _refusal(error: ValidationError) -> Invalid:
    first = error.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, Invalid):
        reason, kind, hint = cause.message, cause.kind, cause.hint
    else:
        reason, kind, hint = first["msg"].lower(), "bad_record", ""
    steps = (f"[{step}]" if isinstance(step, int) else str(step) for step in first["loc"])
    where = "".join(steps) or "record"
    return Invalid(f"the token entry is refused: {where}: {reason}{_given(first['input'])}", kind=kind, hint=hint)


def _given(value: object) -> str:
    """Return a short ``value=`` for the end of a message; nothing for what is no scalar or too long to print."""
    printable = isinstance(value, (str, float)) or (isinstance(value, int) and value.bit_length() <= _PRINTED_BITS)
    return f", value={value!r:.80}" if printable else ""
