"""scripts/ctest_summary.py on a report of each kind of outcome."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SUMMARY = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "ctest_summary.py"

PASSED = '<testcase name="A.Passes" status="run"><system-out/></testcase>'
FAILED = '<testcase name="A.Fails" status="fail"><failure message=""/></testcase>'
NOT_BUILT = """<testcase name="b_NOT_BUILT" status="notrun">
  <skipped message="Unable to find executable"/></testcase>"""
SKIPPED_BY_GTEST = """<testcase name="A.Skips" status="notrun">
  <skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/><system-out>[ RUN      ] A.Skips
a.cc:2: Skipped
needs a GPU,
there is none
[  SKIPPED ] A.Skips (0 ms)
</system-out></testcase>"""
SKIPPED_BY_CODE = """<testcase name="interop.x" status="notrun">
  <skipped message="SKIP_RETURN_CODE=77"/><system-out>noise
SKIP: no registry
</system-out></testcase>"""


def summarise(*cases):
    """Exit code and printed lines for a report of these cases."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "ctest.xml"
        report.write_text(f"<testsuite>{''.join(cases)}</testsuite>")
        return run(report)


def run(*reports):
    done = subprocess.run([sys.executable, SUMMARY, *reports], capture_output=True, text=True,
                          check=False)
    return done.returncode, done.stdout.splitlines()


class CtestSummaryTest(unittest.TestCase):
    def test_all_passed(self):
        self.assertEqual(summarise(PASSED), (0, ["1 passed, 0 failed, 0 skipped"]))

    def test_a_failure_fails(self):
        code, lines = summarise(PASSED, FAILED)
        self.assertEqual(code, 1)
        self.assertEqual(lines[-1], "1 passed, 1 failed, 0 skipped")
        self.assertIn("A.Fails", lines[0])

    def test_a_test_that_was_not_built_has_failed(self):
        code, lines = summarise(PASSED, NOT_BUILT)
        self.assertEqual((code, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))

    def test_skips_are_counted_apart_with_their_reason(self):
        code, lines = summarise(PASSED, SKIPPED_BY_GTEST, SKIPPED_BY_CODE)
        self.assertEqual((code, lines[-1]), (0, "1 passed, 0 failed, 2 skipped"))
        self.assertTrue(lines[0].endswith("A.Skips: needs a GPU, there is none"), lines[0])
        self.assertTrue(lines[1].endswith("interop.x: no registry"), lines[1])

    def test_nothing_run_is_a_failure(self):
        self.assertEqual(summarise(SKIPPED_BY_CODE)[0], 1)
        self.assertEqual(summarise()[0], 1)

    def test_a_missing_report_is_a_failure(self):
        code, lines = run("no/such/asan/ctest.xml")
        self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed, 0 skipped"))
        self.assertIn("asan", lines[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
