#!/bin/bash
# Builds Debian's packages into build/packages, from the files that git knows.
#
#   scripts/packages.sh [OPTION...]       options are those of dpkg-buildpackage
#
#   DEB_BUILD_PROFILES=pkg.gpuvec.cuda    also gpuvec-engine-cuda, which takes nvcc
#   DEB_BUILD_OPTIONS=parallel=4
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^EXTVERSION = //p' Makefile)
packages=$PWD/build/packages
name=gpuvec-$version

rm -rf "$packages"
mkdir -p "$packages/$name"
git ls-files --cached --others --exclude-standard -z -- . ':!:tmp_*' | tar -cf - --null -T - | tar -xf - -C "$packages/$name"
tar -C "$packages" --exclude="$name/debian" -czf "$packages/gpuvec_$version.orig.tar.gz" "$name"
cd "$packages/$name"
dpkg-buildpackage -us -uc "$@"
