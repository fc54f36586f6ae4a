# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Which tests need nemo-gym's server side: building components from its configuration already does."""

from __future__ import annotations

import sys

import pytest

server_side = pytest.mark.skipif(sys.version_info < (3, 12), reason="nemo-gym's server side needs Python 3.12")
