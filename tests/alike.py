# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What tests that ask this package and the installed nemo-gym the same questions have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Callable

quickly = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def plain(record: Any) -> dict[str, Any]:
    return record.model_dump(mode="json")


def outcome(act: Callable[[], Any]) -> Any:
    """Return what an action says, any refusal being ``"refused"``."""
    try:
        return act()
    except (ValueError, TypeError, KeyError):
        return "refused"
