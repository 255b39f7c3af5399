#!/bin/sh
# Get the servers that the tests of deploy/ run, without root and without installing them: deploy/fetch.sh prometheus nginx
# Debian's packages are unpacked into .pointsman/tools/NAME. What is there already is left alone. Fails, and says why,
# where there is no apt (macOS: `brew install prometheus nginx` puts both on the PATH, where the tests find them too).
set -eu
cd "$(dirname "$0")/.."
tools="$PWD/.pointsman/tools"
command -v apt-get >/dev/null 2>&1 || { echo "deploy/fetch.sh: no apt-get here; put $* on the PATH instead" >&2; exit 1; }
# Lists and archives of our own: neither root nor the machine's state is needed.
state="$tools/apt"
apt() {
    apt-get --quiet=2 -o Dir::State="$state" -o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache="$state" \
        -o APT::Sandbox::User= "$@"
}
mkdir -p "$state/lists/partial" "$state/archives/partial"
for name in "$@"; do
    test -e "$tools/$name/.whole" && continue
    test -e "$state/.updated" || { apt update >&2 && touch "$state/.updated"; }
    part=$(mktemp -d "$tools/$name.XXXXXX")
    trap 'rm -rf "$part"' EXIT
    (cd "$part" && apt download "$name" >&2 && dpkg -x "$name"_*.deb . && rm "$name"_*.deb && touch .whole)
    rm -rf "${tools:?}/$name"
    mv "$part" "$tools/$name"
done
