#!/bin/sh
# Unpack programs that tests use into DIR/usr, without installing or starting anything: Debian's etcd 3.4, prometheus
# with its promtool, rpm, shellcheck.
# usage: debian_parts.sh DIR      (does nothing where apt-get is missing: those tests then skip and say why)
set -eu
dir=$1
command -v apt-get >/dev/null && command -v dpkg >/dev/null || exit 0
mkdir -p "$dir"
cd "$dir"
get() { apt-get -q download "$1" >/dev/null 2>&1; }
for package in etcd-server prometheus shellcheck rpm rpm-common librpm9 librpmio9 librpmbuild9 librpmsign9 liblua5.3-0; do
    [ ! -e ".tried-$package" ] || continue
    touch ".tried-$package"
    get "$package" || { apt-get -q update >/dev/null 2>&1 || true; get "$package"; } || { echo "no $package here" >&2; continue; }
    dpkg -x "$package"_*.deb . && rm -f "$package"_*.deb
done
rm -rf etc lib usr/share var
