"""Exit 0 where the server of this container's data directory is ready, 1 where it is not: for HEALTHCHECK.

It reads the note that the server leaves in its data directory, so that it holds for whatever ports the settings name.
Needs the standard library alone. Where HTTP is switched off, that the gRPC port takes connections has to do.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path

SECONDS = 4.0


def problem(data_dir: Path) -> str:
    """What is wrong with the server; "" for nothing."""
    try:
        note = json.loads((data_dir / "server.json").read_text())
    except (OSError, ValueError) as error:
        return f"no server has started here: {error}"
    try:
        if note.get("http_url") is None:
            socket.create_connection((note["host"], note["port"]), SECONDS).close()
        else:
            urllib.request.urlopen(f"{note['http_url']}/readyz", timeout=SECONDS).close()  # noqa: S310 - the note's http URL
    except urllib.error.HTTPError as error:
        with error:
            return f"not ready: {error.read(4096).decode('utf-8', 'replace')}"
    except OSError as error:
        return f"no answer: {error}"
    return ""


def main() -> int:
    """Say what is wrong on stderr."""
    said = problem(Path(os.environ.get("POINTSMAN_DATA_DIR", "/var/lib/pointsman")))
    if said:
        sys.stderr.write(said + "\n")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
