#!/bin/sh
# Pin every dependency with hashes for Python 3.10 to 3.13, without the address of any registry.
# usage: packaging/requirements/lock.sh   (needs uv)
set -eu
cd "$(dirname "$0")/../.."
lock() {
    out=packaging/requirements/$1.txt
    shift
    # uv reads the old file first, so that a pin moves only when asked to (UV_ARGS=--upgrade)
    printf 'hatchling\neditables\n' | uv pip compile -q --universal --python-version 3.10 --generate-hashes --no-annotate \
        --no-header --no-emit-index-url ${UV_ARGS:-} "$@" -o "$out" pyproject.toml -
}
lock base
lock local --extra local
lock dev --extra local --extra etcd3 --extra dev
lock packages --extra packages
