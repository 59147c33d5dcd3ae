"""Serve a stockroom over stdin and stdout: `python -P serve.py SEED`. A script beside the package, so that the package
is imported as any other and the working directory is no place to import from."""

from __future__ import annotations

import sys
from pathlib import Path

# Last: where the package is installed it is found before; loaded by path, it is found here alone.
sys.path.append(str(Path(__file__).resolve().parent.parent))

from mcp_demo.server import make_server

make_server(int(sys.argv[1])).run(show_banner=False)
