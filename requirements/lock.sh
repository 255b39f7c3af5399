#!/bin/sh
# Make the lock files anew from pyproject.toml: `make lock`. Universal: one file for Linux and macOS, Python 3.11 to 3.13.
# torch is left out of models.txt: on Linux pip's default build brings gigabytes of CUDA, so `make setup-models` installs
# it by itself, after everything that it needs, and takes a CPU build where pip finds one.
set -eu
cd "$(dirname "$0")/.."
compile() {
    .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url \
        --generate-hashes pyproject.toml "$@"
}
compile --output-file requirements/serve.txt
compile --extra dev --extra train --constraint requirements/serve.txt --output-file requirements/dev.txt
compile --extra dev --extra train --extra models --constraint requirements/dev.txt --output-file requirements/models.part
# Drop torch and what only its CUDA build needs, each with the hash lines that belong to it.
awk '/^[a-z]/ { drop = ($0 ~ /^(torch|triton|nvidia-|cuda-)/) } !drop' requirements/models.part > requirements/models.txt
rm requirements/models.part
# The libraries whose tables are read, for `make test-layouts`: an environment of their own.
.venv/bin/uv pip compile requirements/layouts.in --quiet --universal --python-version 3.11 --no-header --no-annotate \
    --no-emit-index-url --generate-hashes --output-file requirements/layouts.txt
# The peers of `make bench-peers`: an environment of their own.
.venv/bin/uv pip compile requirements/peers.in --quiet --universal --python-version 3.11 --no-header --no-annotate \
    --no-emit-index-url --generate-hashes --output-file requirements/peers.txt
# What builds the wheel, for the image's build without isolation.
sed -n 's/^requires = \["\(.*\)"\]$/\1/p' pyproject.toml | .venv/bin/uv pip compile - --quiet --universal \
    --python-version 3.11 --no-header --no-annotate --no-emit-index-url --generate-hashes \
    --output-file requirements/build.txt
