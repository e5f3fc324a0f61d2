#!/bin/sh
# Prints a Python 3.11 or newer that can make virtual environments; says what to do where there is none.
# $PYTHON, if set, is the only candidate.
set -u

usable() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3 python3.14 python}; do
        if path=$(command -v "$candidate" 2>/dev/null) && usable "$path"; then
            echo "$path"
            return 0
        fi
    done
    return 1
}

if find_python; then
    exit 0
fi
if [ -z "${PYTHON:-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "no Python 3.11 or newer found: installing python3 and python3-venv with apt-get" >&2
    apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3 python3-venv >&2
    if find_python; then
        exit 0
    fi
fi
echo "MISSING: Python 3.11 or newer (looked for: ${PYTHON:-python3.11 to python3.14, python3, python})." >&2
echo "  Install it with your system's package manager (Debian: apt-get install python3 python3-venv)," >&2
echo "  or name one: make PYTHON=/path/to/python3.12 ..." >&2
exit 1
