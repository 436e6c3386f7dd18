#!/bin/sh
# Unpack Debian's etcd 3.4, and prometheus with its promtool, into DIR/usr/bin, without installing or starting anything.
# usage: debian_parts.sh DIR      (does nothing where apt-get is missing: those tests then skip and say why)
set -eu
dir=$1
[ -e "$dir/.done" ] && exit 0
command -v apt-get >/dev/null && command -v dpkg >/dev/null || exit 0
mkdir -p "$dir"
cd "$dir"
get() { apt-get -q download "$1" >/dev/null 2>&1; }
for package in etcd-server prometheus; do
    get "$package" || { apt-get -q update >/dev/null 2>&1 || true; get "$package"; } || { echo "no $package here" >&2; continue; }
    dpkg -x "$package"_*.deb . && rm -f "$package"_*.deb
done
rm -rf etc lib usr/share var
touch .done
