#!/usr/bin/env python3
"""Fails if two files define a type of the same name in the same namespace.

What templates make of such types has one name in both objects (std::vector<Block>::~vector()), so the linker keeps one of them for both,
whatever their sizes are: no compiler and no linker says so. Types in unnamed namespaces and in classes are not meant. Needs no build.
"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARTS = ("include", "src", "bench", "examples", "tests")
ANOTHER_PROJECT = ROOT / "tests/install/consumer"  # it is linked with none of the others
COMMENTS_AND_TEXTS = re.compile(r'//[^\n]*|/\*.*?\*/|R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)
OPENING = re.compile(
    r"\bnamespace\s*(?P<namespace>[\w:]*)\s*\{"
    r"|\b(?:struct|class|enum(?:\s+class)?)\s+(?:alignas\([^)]*\)\s*)?(?:LEAT_\w+\s+)?(?P<type>\w+)\b(?!\s*::)[^;{()]*\{"
    r"|\{|\}")


def types_of(text):
    """The types that a file defines in namespaces with names, as leat::Channel."""
    open_braces = []  # the name of a namespace, or None
    for match in OPENING.finditer(COMMENTS_AND_TEXTS.sub(" ", text)):
        if match[0] == "}":
            if open_braces:
                open_braces.pop()
        elif match["type"]:
            if all(open_braces):
                yield "::".join([*open_braces, match["type"]])
            open_braces.append(None)
        else:
            open_braces.append(match["namespace"] or None)


def main():
    found = collections.defaultdict(set)
    for part in PARTS:
        for path in sorted((ROOT / part).rglob("*")):
            if path.suffix in (".h", ".cc") and ANOTHER_PROJECT not in path.parents:
                for name in types_of(path.read_text()):
                    found[name].add(str(path.relative_to(ROOT)))
    twice = {name: files for name, files in found.items() if len(files) > 1}
    for name, files in sorted(twice.items()):
        print(f"{name} is defined in {' and in '.join(sorted(files))}: rename one", file=sys.stderr)
    print(f"{len(found)} types, {len(twice)} names of several")
    return 1 if twice or len(found) < 100 else 0


sys.exit(main())
