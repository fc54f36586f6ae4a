# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
import pytest

# Before anything imports them: a law that fails shows the values it compared.
pytest.register_assert_rewrite("gym_objstore.testing")
