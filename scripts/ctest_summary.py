#!/usr/bin/env python3
"""Adds up ctest's JUnit reports: ctest_summary.py REPORT...

Prints every failed test, every skipped one with its reason, and last the line
`N passed, N failed, N skipped`. A test that could not be started has failed. Exits with 1 where a
test failed or none ran.
"""

import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree


def skip_reason(output):
    """The sentence that a skipped test printed: `SKIP: why`, or the lines below gtest's `Skipped`."""
    line = re.search(r"^SKIP: (.+)$", output, re.MULTILINE)
    if line:
        return line[1]
    paragraph = re.search(r": Skipped\n(.+?)\n*(?:\n\n|\[  SKIPPED \]|\Z)", output, re.DOTALL)
    return " ".join(paragraph[1].split()) if paragraph else "no reason given"


def outcome(case):
    """('passed' | 'failed' | 'skipped', reason) of one <testcase>."""
    if case.get("status") == "run":
        return "passed", ""
    if case.get("status") == "disabled":
        return "skipped", "disabled in its source"
    skipped = case.find("skipped")
    if skipped is not None and skipped.get("message", "").startswith("SKIP_"):
        return "skipped", skip_reason(case.findtext("system-out", ""))
    cause = case.find("failure") if skipped is None else skipped
    return "failed", (cause is not None and cause.get("message")) or "see its output above"


def outcomes(report):
    """(name, 'passed' | 'failed' | 'skipped', reason) of each test of a report."""
    if not pathlib.Path(report).exists():
        return [("all tests", "failed", "they did not run: the build failed, see above")]
    cases = ElementTree.parse(report).iter("testcase")
    return [(case.get("name"), *outcome(case)) for case in cases]


def main(reports):
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for report in reports:
        tier = pathlib.Path(report).parent.name
        for name, result, reason in outcomes(report):
            counts[result] += 1
            if result != "passed":
                print(f"{result}: {tier}: {name}: {reason}")
    print(", ".join(f"{count} {result}" for result, count in counts.items()))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
