"""Names the folder of compiled kernels before the tests import one."""

from __future__ import annotations

import tests.support.kernel_cache  # noqa: F401
