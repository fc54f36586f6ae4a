# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Tests that need torch, in an environment of their own: ``make test-torch``."""
