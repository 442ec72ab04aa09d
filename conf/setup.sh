#!/usr/bin/env bash
# Set up the virtual environment: `bash conf/setup.sh VENV UV_VERSION`. Called by `make setup`; needs Python 3.11+.
set -euo pipefail

venv=$1
uv_version=$2

say() { printf 'setup: %s\n' "$*" >&2; }
stop() {
  say "$*"
  exit 1
}

python=""
for candidate in python3.13 python3.12 python3.11 python3; do
  if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    python=$candidate
    break
  fi
done
# A shim may answer to a version that is not installed; python3 itself is preferred where it is new enough.
if python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=python3; fi
[ -n "$python" ] || stop "Python 3.11 or newer is needed; install it and run this again"

# The brokers and Spark need Java 17+; this installs it where the system's package manager may.
"$python" -m streaming_app.local.java --install

if ! "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  say "creating $venv with $("$python" --version)"
  "$python" -m venv --clear "$venv" 2>/dev/null ||
    stop "can't create a virtual environment; on Debian: apt-get install python3-venv"
fi

if ! "$venv/bin/uv" --version >/dev/null 2>&1; then
  say "installing uv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "uv==$uv_version"
fi

uv() { VIRTUAL_ENV=$PWD/$venv UV_PYTHON_DOWNLOADS=never "$venv/bin/uv" "$@"; }

say "installing the locked dependencies"
uv pip install --quiet --require-hashes --compile-bytecode -r requirements.lock

if ! command -v cc >/dev/null 2>&1 && ! command -v gcc >/dev/null 2>&1; then
  stop "a C compiler is needed to build the record kernel; on Debian: apt-get install gcc libc6-dev"
fi
say "building the record kernel"
uv pip install --quiet --no-deps --no-build-isolation --editable .
