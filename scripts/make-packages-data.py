#!/usr/bin/env python3
"""Makes test/data/packages.tsv.xz and words.tsv.xz from Debian's package index.

usage: apt-get update && scripts/make-packages-data.py    (on a Debian machine)

A package's set holds its debtags, its section, and the words of its name and short
description.  Packages of updates come without debtags, so all versions on offer are
read, and a package gets the tags of any of them.  Words that only one package has say
nothing about similarity, nor do words that more than a fifth of all packages have; both
are left out.  Packages without debtags are taken too, except from the sections of
libraries, which are many and say little.  The output is sorted and depends on the
index alone.
"""
import lzma
import os
import re
import subprocess
import sys
from collections import Counter

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "test", "data")
STOP = set("""a an and are as at be by for from in into is it its more of on or other over that the their this to
              used using via was with without your you can has have not all any based support library libraries package
              files data tool tools version development documentation common software program programs simple""".split())
MAX_SHARE = 0.2
LIBRARY_SECTIONS = set("""debug doc fonts gnu-r golang haskell introspection java javascript kernel libdevel libs lisp
                          localization metapackages ocaml oldlibs perl php python ruby rust""".split())


def wanted(fields):
    """Is this a package to take?"""
    section = fields.get("Section", "unknown").split("/")[-1]
    return "Tag" in fields or section not in LIBRARY_SECTIONS


def output_of(*command):
    """What a program prints."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE,
                          env=dict(os.environ, LC_ALL="C.UTF-8")).stdout.decode("utf-8", "replace")


def paragraphs():
    """Yield each version of each package as a dictionary of its fields."""
    indexes = output_of("apt-get", "indextargets", "--format", "$(FILENAME)", "Created-By: Packages").split()
    for index in sorted(indexes):
        for block in output_of("/usr/lib/apt/apt-helper", "cat-file", index).split("\n\n"):
            fields = {}
            name = None
            for line in block.split("\n"):
                if line[:1] in (" ", "\t") and name:
                    fields[name] += " " + line.strip()
                elif ":" in line:
                    name, value = line.split(":", 1)
                    fields[name] = value.strip()
            if "Package" in fields:
                yield fields


def read_packages():
    """All packages by name; of several versions the last one, with the tags of all."""
    packages = {}
    for fields in paragraphs():
        older = packages.get(fields["Package"], {})
        tags = ", ".join(f["Tag"] for f in (older, fields) if "Tag" in f)
        if tags:
            fields["Tag"] = tags
        packages[fields["Package"]] = fields
    return packages


def words_of(fields):
    """The words of a package, as a set."""
    words = {"section:" + fields.get("Section", "unknown").split("/")[-1]}
    words.update(tag.strip() for tag in fields.get("Tag", "").split(",") if tag.strip())
    for word in re.split("[^a-z+#]+", (fields["Package"] + " " + fields.get("Description", "")).lower()):
        if len(word) >= 3 and word not in STOP:
            words.add(word)
    return words


def write(name, lines):
    path = os.path.join(HERE, name)
    with lzma.open(path, "wt", encoding="utf-8", preset=9 | lzma.PRESET_EXTREME) as out:
        out.writelines(lines)
    print(f"{name}: {os.path.getsize(path)} bytes")


def main():
    packages = {name: (fields.get("Description", ""), words_of(fields))
                for name, fields in read_packages().items() if wanted(fields)}
    if not packages:
        sys.exit("there is no package index; run apt-get update")
    count = Counter(word for _, words in packages.values() for word in words)
    most = len(packages) * MAX_SHARE
    vocabulary = sorted((word for word, n in count.items() if 2 <= n <= most), key=lambda w: (-count[w], w))
    if len(vocabulary) > 65535:
        sys.exit(f"{len(vocabulary)} words are too many")
    number = {word: n for n, word in enumerate(vocabulary)}
    lines = []
    for name in sorted(packages):
        description, words = packages[name]
        ids = sorted(number[w] for w in words if w in number)
        description = description.replace("\\", "/").replace("\t", " ")
        lines.append(f"{name}\t{description}\t{{{','.join(map(str, ids))}}}\n")
    write("packages.tsv.xz", lines)
    write("words.tsv.xz", [f"{n}\t{word}\n" for n, word in enumerate(vocabulary)])
    print(f"{len(packages)} packages, {len(vocabulary)} words")


main()
