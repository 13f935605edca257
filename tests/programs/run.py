#!/usr/bin/env python3
"""Runs a real program over the kernel's TCP, then under a runner such as leat-run, and fails if it gives anything else.

Usage: run.py PROGRAM [--runner COMMAND] [--carriers both,server,client] [--json FILE] [--skip-missing] [--keep]
       run.py --list

PROGRAM is a module of this folder. With --runner its server and its client are started by that command, both or only one of
them; their results must be those of plain TCP, byte for byte. Ratios of speed and of processor time are printed, never judged. A program that is
not installed is an error, or with --skip-missing (or LEAT_PROGRAMS_SKIP_MISSING=1) a reason to exit with 77.
LEAT_PROGRAMS_LONG=1: more repetitions, for speeds that mean more, and all of CPython's tests.
"""
import argparse
import importlib
import json
import os
import pathlib
import shlex
import shutil
import signal
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


def write_json(path, program, expected, found):
    speeds = [{"what": what, "tcp": expected.speeds[what], "leat": speed} for what, speed in found.speeds.items()]
    ratios = {one["what"]: one["leat"] / one["tcp"] for one in speeds}
    ratios["processor time"] = found.processor_time / expected.processor_time
    report = {"bench": f"programs-{program}", "host": {"cpus": os.cpu_count(), "load": os.getloadavg()[0],
                                                       "spin_us": os.environ.get("LEAT_SPIN_US", "50")},
              "results": speeds, "ratios": ratios}
    pathlib.Path(path).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program", nargs="?")
    parser.add_argument("--runner", type=shlex.split, default=[])
    parser.add_argument("--carriers", default="both,server,client")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--skip-missing", action="store_true", default=bool(os.environ.get("LEAT_PROGRAMS_SKIP_MISSING")))
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--json", help="also write the speeds with both ends under the runner, and their ratios to TCP")
    arguments = parser.parse_args()
    if arguments.runner:
        arguments.runner[0] = os.path.abspath(shutil.which(arguments.runner[0]) or arguments.runner[0])
    if arguments.list or arguments.program is None:
        print("\n".join(name.removesuffix("_program") for name in programs()))
        return 0
    name = arguments.program
    module = importlib.import_module(f"{name}_program")
    missing = [one for one in module.NEEDS if not harness.has(one)]
    if missing:
        print(f"{name}: {'skipped' if arguments.skip_missing else 'FAILED'}, not installed: {' '.join(missing)}")
        return SKIPPED if arguments.skip_missing else 1
    harness.adopt_orphans()
    # Told to end, it ends its programs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

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
            if carrier == "both" and arguments.json:
                write_json(arguments.json, name, expected, found)
            if carrier == "both" and found.carried() == 0:
                print(f"{name}: {carrier}: FAILED: leat carried nothing")
                failures += 1
            compared = [(expected.results, found.results)] + ([(expected.measured, found.measured)] if found.both() else [])
            for difference in (one for pair in compared for one in differences(*pair)):
                print(f"{name}: {carrier}: DIFFERS: {difference}", flush=True)
                failures += 1
    if not arguments.runner:
        print(f"{name}: without a runner: only TCP was tried")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
