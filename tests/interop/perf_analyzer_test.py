"""perf_analyzer, unmodified, driven by the command line that `scanctl export-perf-data` prints."""

import csv
import math
import os
import pathlib
import shlex
import subprocess
import tempfile
import unittest

import tritonclient.grpc as triton

import server_process

CASES = {
    "selective_scan_fwd": "batch=2,seqlen=128,dim=64,dstate=16",
    "selective_scan_bwd": "batch=1,seqlen=65,dim=33,dstate=16",
}
RUN_LIMIT_S = 120
CONCURRENCY = (1, 2)
FIGURES = (
    "Inferences/Second",
    "Server Queue",
    "Server Compute Input",
    "Server Compute Infer",
    "Server Compute Output",
    "p50 latency",
    "p99 latency",
)


class PerfAnalyzerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(server_process.ServerProcess(server_process.bin_dir()))

    def export(self, model, folder):
        """The command line for perf_analyzer, its program left out."""
        scanctl = pathlib.Path(server_process.bin_dir()) / "scanctl"
        done = subprocess.run(
            [scanctl, f"--server={self.server.address}", "export-perf-data",
             f"{model}:fp32:{CASES[model]}", folder],
            capture_output=True, text=True, check=True)
        program, *arguments = shlex.split(done.stdout)
        self.assertEqual(program, "perf_analyzer")
        return arguments

    def run_perf_analyzer(self, model, folder):
        """Rows of its report, one per concurrency."""
        report = pathlib.Path(folder) / "report.csv"
        libraries = os.environ["PERF_ANALYZER_LIBRARY_PATH"]
        done = subprocess.run(
            [os.environ["PERF_ANALYZER"], *self.export(model, folder),
             f"--concurrency-range={CONCURRENCY[0]}:{CONCURRENCY[-1]}",
             # Short windows and any spread: this is no benchmark.
             "--measurement-interval=500", "--stability-percentage=900", "-f", report],
            env=os.environ | {"LD_LIBRARY_PATH": libraries}, timeout=RUN_LIMIT_S,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        print(done.stdout)
        self.assertEqual(done.returncode, 0)
        with report.open() as lines:
            return sorted(csv.DictReader(lines), key=lambda row: int(row["Concurrency"]))

    def test_perf_analyzer_measures_every_direction(self):
        for model in CASES:
            with self.subTest(model=model), tempfile.TemporaryDirectory() as folder:
                rows = self.run_perf_analyzer(model, folder)
                self.assertEqual([int(row["Concurrency"]) for row in rows], list(CONCURRENCY))
                for row in rows:
                    for column in FIGURES:
                        value = float(row[column])
                        self.assertTrue(math.isfinite(value) and value >= 0, f"{column}: {value}")
                    self.assertGreater(float(row["Inferences/Second"]), 0)
                    self.assertGreater(float(row["Server Compute Infer"]), 0)
                with triton.InferenceServerClient(self.server.address) as client:
                    stats = client.get_inference_statistics(model).model_stats[0].inference_stats
                self.assertGreater(stats.success.count, 0)
                self.assertEqual(stats.fail.count, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
