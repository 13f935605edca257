"""CPython's own tests of sockets: some thousands of rules of POSIX sockets, result by result.

Both ends are in one process. LEAT_PROGRAMS_LONG=1 adds asyncio's, which take minutes.
"""
import os
import re
import time

import harness

PYTHON = "/usr/bin/python3.11"
NEEDS = [PYTHON, "/usr/lib/python3.11/test/test_socket.py"]
CARRIERS = ["both"]
TESTS = ["test_select", "test_selectors", "test_epoll", "test_poll", "test_socketserver", "test_socket"]
TESTS += ["test_asyncio"] if harness.LONG else []


def start(run, test, *options):
    # Each test makes connections of its own, most of them short.
    os.environ["LEAT_PRELOAD_ALL"] = "1"
    return run.start_client([PYTHON, "-m", "test", "-v", "-u", "network", "-i", "*VSOCK*", *options, test])


def end(run, process):
    return run.finish(process, timeout=600 if harness.LONG else 200, codes=(0, 1, 2, 3, 4)).decode(errors="replace")


def run(run):
    begin = time.monotonic()
    # All at once, because most of the time they sleep.
    for test, process in [(test, start(run, test)) for test in TESTS]:
        output = end(run, process)
        # "test_name (test.module.Class.test_name) ... ok", where some tests print in between.
        found = re.findall(r"^(test\w+) \((\S+)\)(?:\n[^\n]*)? \.\.\. (?:[^\n]*?)(ok|FAIL|ERROR|skipped[^\n]*|expected failure)?$",
                           output, re.MULTILINE)
        outcomes = {f"{place}.{name}": outcome for name, place, outcome in found}
        failed = set(re.findall(r"^(?:FAIL|ERROR): (\S+) \((\S+)\)", output, re.MULTILINE))
        # As in CPython's own runs what fails has another try, alone: some tests depend on time.
        for name, place in sorted(failed):
            if "Tests result: SUCCESS" in end(run, start(run, test, "-m", name)):
                failed.remove((name, place))
                outcomes[f"{place}.{name}"] = "ok"
        for name, outcome in outcomes.items():
            run.result(name, outcome)
        run.result(f"{test} failed", sorted(failed))
        run.result(f"{test} count", re.findall(r"^Ran (\d+) tests", output, re.MULTILINE))
    run.speed("suites/s", len(TESTS) / (time.monotonic() - begin))
