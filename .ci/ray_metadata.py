# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Let nemo-gym's servers start without Ray: at import they ask for its version and use nothing else of it.

Installs the metadata of a distribution without files into the environment of this Python, unless Ray is there.
Pip sees it as installed; ``pip uninstall ray`` removes it.
"""

from __future__ import annotations

import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

VERSION = "2.58.0"
FILES = {
    "METADATA": f"Metadata-Version: 2.1\nName: ray\nVersion: {VERSION}\n",
    "INSTALLER": "gym-objstore\n",
    "WHEEL": "Wheel-Version: 1.0\nGenerator: gym-objstore\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}


def main() -> None:
    """Write the metadata where Ray's own would be."""
    try:
        version("ray")
    except PackageNotFoundError:
        folder = Path(sysconfig.get_path("purelib")) / f"ray-{VERSION}.dist-info"
        folder.mkdir()
        for name, text in FILES.items():
            (folder / name).write_text(text, encoding="utf-8")
        record = "".join(f"{folder.name}/{name},,\n" for name in (*FILES, "RECORD"))
        (folder / "RECORD").write_text(record, encoding="utf-8")


if __name__ == "__main__":
    main()
