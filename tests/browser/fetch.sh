#!/bin/sh
# Get the browser that tests/browser drives, without root and without installing it: tests/browser/fetch.sh
# Debian's headless Chromium and those of its libraries that this machine lacks are unpacked into
# .pointsman/tools/chromium. What is there already is left alone, and a Chromium on the PATH is enough.
# Fails, and says why, where there is no apt.
set -eu
cd "$(dirname "$0")/../.."
tools="$PWD/.pointsman/tools"
test -e "$tools/chromium/.whole" && exit 0
for name in chromium-headless-shell chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null 2>&1 && exit 0
done
command -v apt-get >/dev/null 2>&1 || { echo "tests/browser/fetch.sh: no apt-get here; put a Chromium on the PATH instead" >&2; exit 1; }
state="$tools/apt"
mkdir -p "$state/lists/partial"
part=$(mktemp -d "$tools/chromium.XXXXXX")
trap 'rm -rf "$part"' EXIT
mkdir -p "$part/archives/partial" "$part/root"
apt() {
    apt-get --quiet=2 -o Dir::State="$state" -o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache="$part" \
        -o Dir::Cache::archives="$part/archives" -o APT::Sandbox::User= -o Debug::NoLocking=1 "$@"
}
test -e "$state/.updated" || { apt update >&2 && touch "$state/.updated"; }
apt --yes --no-install-recommends --download-only install chromium-headless-shell >&2
for package in "$part"/archives/*.deb; do dpkg -x "$package" "$part/root"; done
touch "$part/root/.whole"
rm -rf "$tools/chromium"
mv "$part/root" "$tools/chromium"
