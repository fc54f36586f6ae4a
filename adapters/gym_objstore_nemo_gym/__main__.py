# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m gym_objstore_nemo_gym``; see ``entry``."""

from __future__ import annotations

import sys

from gym_objstore_nemo_gym.entry import main

main(sys.argv[1:])
