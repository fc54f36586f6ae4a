# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The laws of a token transport, one check each, for ours and for anybody's.

``run_conformance(transport)`` plays every law with fresh clients and its own rollouts and reports all
outcomes, not only the first failure. A refusal counts only if it is one of the transport's declared
refusals: an ``AttributeError`` is a failure, not a refusal. ``assert_conformance`` raises with the list.
"""

from __future__ import annotations

import traceback
import uuid
from typing import Any, NamedTuple

from gym_objstore.testing import lineage_laws, token_laws
from gym_objstore.testing.trials import LAWS, Broken, NotOffered, Transport, Trial

__all__ = ["LAWS", "Broken", "Outcome", "Transport", "assert_conformance", "run_conformance"]

MODULES = (token_laws, lineage_laws)
"""Where the laws are; importing them fills ``LAWS``."""


class Outcome(NamedTuple):
    """What one law gave: ``passed``, ``failed`` or ``skipped`` with the reason or the traceback."""

    law: str
    promise: str
    verdict: str
    detail: str = ""


async def run_conformance(transport: Transport, *, prefix: str | None = None) -> list[Outcome]:
    """Try every law on rollouts whose ids begin with ``prefix`` and return all outcomes."""
    prefix = prefix or f"conformance-{uuid.uuid4().hex[:8]}"
    return [
        await _try(name, check, transport, f"{prefix}-{number}") for number, (name, check) in enumerate(LAWS.items())
    ]


async def assert_conformance(transport: Transport, *, prefix: str | None = None) -> list[Outcome]:
    """Try every law; raise ``Broken`` that lists all failures, if there are any."""
    outcomes = await run_conformance(transport, prefix=prefix)
    if failures := [one for one in outcomes if one.verdict == "failed"]:
        raise Broken("\n".join(f"{one.law}: {one.promise}\n{one.detail}" for one in failures))
    return outcomes


async def _try(name: str, check: Any, transport: Transport, rollout_id: str) -> Outcome:
    promise = (check.__doc__ or "").strip().splitlines()[0]
    trial = Trial(transport, rollout_id)
    try:
        async with trial.closing:
            await check(trial)
    except NotOffered as reason:
        return Outcome(name, promise, "skipped", str(reason))
    except Exception:  # noqa: BLE001 - whatever was raised, the law does not hold
        return Outcome(name, promise, "failed", traceback.format_exc())
    return Outcome(name, promise, "passed")
