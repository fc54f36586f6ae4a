# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Which bucket and which run a component works on: plain values that may be logged, pickled and compared."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from gym_objstore.errors import Invalid
from gym_objstore.ids import require_id
from gym_objstore.store.options import StoreOptions

URL_VARIABLE = "GYM_OBJSTORE_URL"
RUN_VARIABLE = "GYM_OBJSTORE_RUN_ID"
SPILL_VARIABLE = "GYM_OBJSTORE_SPILL_DIR"


@dataclass(frozen=True, slots=True)
class Settings:
    """A run in a store. Equal settings share one connection in a process.

    ``spill_dir`` is the local folder that keeps what the store could not take; it must survive restarts.
    """

    store: StoreOptions
    run_id: str
    spill_dir: str

    @classmethod
    def of(cls, url: str | None, run_id: str | None, **options: object) -> Settings:
        """Read settings from arguments and, where one is absent, from the environment.

        Raises ``Invalid`` for a missing url or run id and for unknown options, before any I/O.
        """
        spill_dir = options.pop("spill_dir", None) or os.environ.get(SPILL_VARIABLE) or default_spill_dir()
        return cls(
            store=StoreOptions.of(url, **options),
            run_id=require_id(run_id or os.environ.get(RUN_VARIABLE) or _missing_run(), "run id"),
            spill_dir=str(spill_dir),
        )


def default_spill_dir() -> Path:
    """Return the folder for spilled writes where none was configured."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "gym-objstore" / "spill"


def _missing_run() -> str:
    raise Invalid(
        "a run id is missing: rollout ids repeat from run to run, so without one two runs would mix in one bucket",
        kind="no_run_id",
        hint=f"pass run_id= or set {RUN_VARIABLE}, the same on every node of the run",
    )
