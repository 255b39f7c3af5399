#!/bin/sh
# Where no image can be built: run its steps in a clean folder, try what they leave, and add up the size.
#   deploy/docker/steps.sh [FOLDER]      (a fresh temporary folder by default; removed at the end)
# The base image is put together from what it consists of: Debian's required packages, as they are installed here (an
# upper estimate: the slim image has neither documents nor locales), and this machine's Python.
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-$(mktemp -d)}
server=
trap 'test -z "$server" || kill "$server" 2>/dev/null || :; rm -rf "$folder"' EXIT
chmod 755 "$folder" # root's embedded database runs under another account, which has to get in
megabytes() { du --summarize --block-size=1M --apparent-size "$1" | cut -f1; }

# A copy as .dockerignore leaves it: the folders that the Dockerfile copies, without what git ignores.
mkdir -p "$folder/src"
(cd "$source" && git ls-files -z --cached --others --exclude-standard -- pyproject.toml README.md LICENSE requirements protos standard classifier agentic router \
    deploy/demo deploy/contracts deploy/docker | xargs -0 tar -cf - ) | tar -xf - -C "$folder/src"
"$folder/src/deploy/docker/install.sh" requirements "$folder/opt"
"$folder/src/deploy/docker/install.sh" pointsman "$folder/opt"
rm -rf "$folder/src"

export PATH="$folder/opt/bin:/usr/bin:/bin" POINTSMAN_DATA_DIR="$folder/data" HOME="$folder/data" PYTHONDONTWRITEBYTECODE=1 \
    POINTSMAN_SERVER__PORT=0 POINTSMAN_SERVER__METRICS_PORT=0 POINTSMAN_HTTP__PORT=0
unset PYTHONPATH POINTSMAN_CONFIG || :
mkdir -p "$folder/data" && cd "$folder/data"
pointsman --help >/dev/null
python -c 'import importlib.util as u, sys; sys.exit("torch is in the image" if u.find_spec("torch") else 0)'
pointsman serve 2>serve.log &
server=$!
tries=0
until python "$source/deploy/docker/healthcheck.py" 2>/dev/null; do
    tries=$((tries + 1))
    test "$tries" -lt 60 && kill -0 "$server" || { cat serve.log >&2; exit 1; }
    sleep 1
done
echo '{"id": "pump", "text": "The spare pump is kept in the shed."}' | pointsman ingest - --json >/dev/null
pointsman ask 'Where is the spare pump?' --json | grep -q shed
kill -TERM "$server" && wait "$server"
server=

environment=$(megabytes "$folder/opt")
debian=$(($(dpkg-query --show --showformat='${Priority} ${Installed-Size}\n' | awk '$1 == "required" { sum += $2 } END { print sum }') / 1024))
home=$(python -c 'import sys; print(sys.base_prefix)')
# As the official image is made: its own pip and setuptools, no tests, no compiled files.
interpreter=$(find "$home/lib" "$home/bin" -type f \( -not -path '*/site-packages/*' -o -path '*/site-packages/pip/*' \
    -o -path '*/site-packages/setuptools/*' \) -not -path '*/test/*' -not -path '*/tests/*' -not -path '*/idle_test/*' \
    -not -name '*.a' -not -name '*.pyc' -printf '%s\n' | awk '{ sum += $1 } END { print int(sum / 1048576) }')
total=$((environment + debian + interpreter))
echo "environment $environment MB + Debian $debian MB + Python $interpreter MB = $total MB"
test "$total" -lt 600 || { echo "the image would be larger than 600 MB" >&2; exit 1; }
