#!/bin/sh
# Print a fresh key for a caller and one for an administrator, in the form that nginx.conf reads.
set -eu
for who in caller admin; do
    key=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
    printf '"Bearer %s" %s;\n' "$key" "$who"
done
