# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Measurements behind the decisions and the claims. Not installed, and never part of the tests: timings live here."""
