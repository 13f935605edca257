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


def run(run):
    start = time.monotonic()
    tests = TESTS + (["test_asyncio"] if os.environ.get("LEAT_PROGRAMS_LONG") else [])
    for test in tests:
        output = run.client([PYTHON, "-m", "test", "-v", "-u", "network", "-i", "*VSOCK*", test], timeout=300,
                            codes=(0, 1, 2, 3, 4)).decode(errors="replace")
        # "test_name (test.module.Class.test_name) ... ok", where some tests print in between.
        found = re.findall(r"^(test\w+) \((\S+)\)(?:\n[^\n]*)? \.\.\. (?:[^\n]*?)(ok|FAIL|ERROR|skipped[^\n]*|expected failure)?$",
                           output, re.MULTILINE)
        for name, place, outcome in found:
            run.result(f"{place}.{name}", outcome)
        failed = re.findall(r"^(?:FAIL|ERROR): (\S+ \(\S+\))", output, re.MULTILINE)
        run.result(f"{test} failed", sorted(set(failed)))
        run.result(f"{test} count", re.findall(r"^Ran (\d+) tests", output, re.MULTILINE))
    run.speed("suites/s", len(tests) / (time.monotonic() - start))
