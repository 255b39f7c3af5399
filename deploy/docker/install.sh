#!/bin/sh
# What the image holds, in two steps so that the first is cached: install.sh requirements PREFIX, install.sh pointsman PREFIX.
# The Dockerfile runs it, and deploy/docker/steps.sh in a plain folder. Everything is locked with hashes; the environment
# has no pip of its own.
set -eu
step=$1 prefix=$2
python=${PYTHON:-python3}
source=$(cd "$(dirname "$0")/../.." && pwd)
into() {
    "$python" -m pip --python "$prefix/bin/python" install --quiet --no-cache-dir --disable-pip-version-check "$@"
}
case $step in
requirements)
    "$python" -m venv --without-pip "$prefix"
    into --require-hashes --requirement "$source/requirements/serve.txt"
    # Tests, type stubs and headers of packages: nothing imports them here.
    find "$prefix/lib" -depth -type d \( -name tests -o -name test \) -exec rm -rf {} +
    find "$prefix/lib" -type f \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.a' -o -name '*.h' \) -delete
    rm -rf "$prefix"/lib/python3.*/site-packages/setuptools "$prefix"/lib/python3.*/site-packages/_distutils_hack \
        "$prefix"/lib/python3.*/site-packages/distutils-precedence.pth
    ;;
pointsman)
    build=$(mktemp -d)
    trap 'rm -rf "$build"' EXIT
    "$python" -m venv --without-pip "$build/venv"
    "$python" -m pip --python "$build/venv/bin/python" install --quiet --no-cache-dir --disable-pip-version-check \
        --require-hashes --requirement "$source/requirements/build.txt"
    (cd "$source" && "$build/venv/bin/python" -m hatchling build --target wheel --directory "$build/wheel" >/dev/null)
    into --no-deps --no-index "$build"/wheel/*.whl
    ;;
*)
    echo "install.sh: requirements or pointsman, not '$step'" >&2
    exit 2
    ;;
esac
