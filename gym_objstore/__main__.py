# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m gym_objstore`` is the ``gym-objstore`` command."""

from gym_objstore.cli import main

main()
