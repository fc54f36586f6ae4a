# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What tests of this package, and of software built on it, need: suites of laws, doubles, real servers.

Import the module you need; each says which packages it asks for.
"""
