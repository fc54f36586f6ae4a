# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The keys of what says something about a whole run, and of the run that is none; all others are in ``keys``."""

from __future__ import annotations

from gym_objstore.keys import FAMILIES, RUN_FOLDER, run_prefix

PROBES = "!probe"
"""The segment of no run, below which ``doctor`` tries what it may do."""


def probe_key(family: str, kind: str) -> str:
    """Return the key of the harmless object that stands for all of a kind, or for a run's own (``RUN_FOLDER``)."""
    return f"{family}/{PROBES}/{kind if kind == RUN_FOLDER else f'doctor/{kind}'}/probe"


def writer_keys_at(run: str) -> tuple[str, ...]:
    """Return the keys of the writer markers of the run at a segment, one for each family."""
    return tuple(f"{family}/{run}/{RUN_FOLDER}/writer" for family in FAMILIES)


def run_folder(family: str, run_id: str) -> str:
    """Return the prefix of what one family holds of a run itself, and not of its rollouts."""
    return f"{run_prefix(family, run_id)}{RUN_FOLDER}/"


def descriptor_prefix(run_id: str) -> str:
    """Return the prefix of what says with which settings a run is made."""
    return f"{run_folder('manifests', run_id)}descriptors/"


def descriptor_key(run_id: str, digest: str) -> str:
    """Return the key of a run's descriptor, from the SHA-256 of its bytes: two for one run are a conflict."""
    return f"{descriptor_prefix(run_id)}{digest}"


def closed_key(run_id: str) -> str:
    """Return the key of the marker that says a run has no more writers."""
    return f"{run_folder('manifests', run_id)}closed"
