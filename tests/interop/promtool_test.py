"""Prometheus's own tool reads the metrics page."""

import os
import subprocess
import unittest
import urllib.request

import tritonclient.grpc as triton

import server_process
from tritonclient_test import as_triton, make_inputs

PAGE_LIMIT_S = 10


class PromtoolTest(unittest.TestCase):
    def test_metrics_page_has_no_lint_after_calls_and_errors(self):
        with server_process.ServerProcess(server_process.bin_dir()) as server:
            with triton.InferenceServerClient(server.address) as client:
                client.infer("selective_scan_fwd", as_triton(make_inputs()))
                with self.assertRaises(triton.InferenceServerException):
                    client.infer("no_such_model", as_triton(make_inputs()))
            with urllib.request.urlopen(server.metrics_url, timeout=PAGE_LIMIT_S) as page:
                text = page.read()
        self.assertRegex(text.decode(), r'scanserve_\w+\{[^}]*selective_scan_fwd[^}]*\} [1-9]')
        check = subprocess.run([os.environ["PROMTOOL"], "check", "metrics"], input=text,
                               capture_output=True, check=False)
        self.assertEqual((check.stdout + check.stderr).decode(), "")
        self.assertEqual(check.returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
