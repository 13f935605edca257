#!/usr/bin/env python3
"""Runs a real program over the kernel's TCP, then under a runner such as leat-run, and fails if it gives anything else.

Usage: run.py PROGRAM [--runner COMMAND] [--carriers both,server,client] [--keep]
       run.py --list

PROGRAM is a module of this folder. With --runner its server and its client are started by that command, both or only one of
them; their results must be those of plain TCP, byte for byte. Ratios of speed are printed, never judged. Exits 77 if the
program is not installed.
"""
import argparse
import importlib
import pathlib
import shlex
import sys

import harness

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77


def programs():
    return sorted(path.stem for path in HERE.glob("*_program.py"))


def differences(expected, found):
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            yield f"{name}: expected {harness.short(expected.get(name))}, got {harness.short(found.get(name))}"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program", nargs="?")
    parser.add_argument("--runner", type=shlex.split, default=[])
    parser.add_argument("--carriers", default="both,server,client")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    if arguments.list or arguments.program is None:
        print("\n".join(name.removesuffix("_program") for name in programs()))
        return 0
    name = arguments.program
    module = importlib.import_module(f"{name}_program")
    missing = [one for one in module.NEEDS if not harness.has(one)]
    if missing:
        print(f"{name}: skipped, not installed: {' '.join(missing)}")
        return SKIPPED

    failures = 0
    with harness.Folder(arguments.keep) as folder:
        try:
            expected = harness.run(module, folder, [], [])
        except harness.Failure as failure:
            print(f"{name}: tcp: FAILED: {failure}")
            return 1
        print(f"{name}: tcp: {expected.text()}", flush=True)
        carriers = arguments.carriers.split(",") if arguments.runner else []
        for carrier in getattr(module, "CARRIERS", carriers):
            if carrier not in carriers:
                continue
            server = arguments.runner if carrier in ("both", "server") else []
            client = arguments.runner if carrier in ("both", "client") else []
            try:
                found = harness.run(module, folder, server, client)
            except harness.Failure as failure:
                print(f"{name}: {carrier}: FAILED: {failure}", flush=True)
                failures += 1
                continue
            print(f"{name}: {carrier}: {found.text(expected)}", flush=True)
            if carrier == "both" and found.carried() == 0:
                print(f"{name}: {carrier}: FAILED: leat carried nothing")
                failures += 1
            for difference in differences(expected.results, found.results):
                print(f"{name}: {carrier}: DIFFERS: {difference}", flush=True)
                failures += 1
    if not arguments.runner:
        print(f"{name}: without a runner: only TCP was tried")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
