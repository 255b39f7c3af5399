"""Make the Python stubs from the protos, or check that the committed ones are current.

Run as `python protos/generate.py [--check]`; needs the extra `dev` (grpcio-tools, mypy-protobuf).
"""

from __future__ import annotations

import argparse
import filecmp
import sys
import tempfile
from importlib import resources
from pathlib import Path

ROOT = Path(__file__).resolve().parent
SOURCES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("pointsman/v1/*.proto"))


def generate(output: Path) -> None:
    """Write `*_pb2.py`, `*_pb2_grpc.py` and their type stubs below `output`."""
    from grpc_tools import protoc

    plugins = Path(sys.executable).parent
    well_known = str(resources.files("grpc_tools") / "_proto")
    arguments = [
        "protoc",
        f"--proto_path={ROOT}",
        f"--proto_path={well_known}",
        f"--plugin=protoc-gen-mypy={plugins / 'protoc-gen-mypy'}",
        f"--plugin=protoc-gen-mypy_grpc={plugins / 'protoc-gen-mypy_grpc'}",
        f"--python_out={output}",
        f"--grpc_python_out={output}",
        f"--mypy_out=quiet:{output}",
        f"--mypy_grpc_out=quiet:{output}",
        *SOURCES,
    ]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed; its message is above")


def main() -> int:
    """Generate in place, or compare with a fresh generation and name what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 where a committed stub is stale")
    if not parser.parse_args().check:
        generate(ROOT)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        generate(fresh)
        made = sorted(path.relative_to(fresh).as_posix() for path in fresh.rglob("*.py*"))
        stale = [
            name
            for name in made
            if not (ROOT / name).exists() or not filecmp.cmp(fresh / name, ROOT / name, shallow=False)
        ]
    for name in stale:
        print(f"stale stub: protos/{name}; run `make protos`", file=sys.stderr)  # noqa: T201
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
