# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The demonstration: several processes, nothing shared but a store's url, and a trainer that is not fooled."""
