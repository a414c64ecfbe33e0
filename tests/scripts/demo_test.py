"""scripts/demo.sh on the build under test: every line that it promises is there and a number."""

import math
import os
import pathlib
import re
import subprocess
import unittest

DEMO = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "demo.sh"
RUN_LIMIT_S = 240
GRADIENTS = ("du", "ddelta", "dA", "dB", "dC", "dD")
ERRORS = [f"worst_error_{name}"
          for name in ("y", "final_state", *GRADIENTS, "forward_backward")]
BYTES = [f"{prefix}{kind}_bytes" for prefix in ("", "backward_", "forward_backward_")
         for kind in ("request", "response")]
TIMES = [
    pattern.format(direction)
    for direction in ("forward", "backward", "forward_backward")
    for pattern in ("remote_{}_ms", "local_{}_ms", "metrics_{}_p50_ms", "metrics_{}_p99_ms")
]
FLOOR = ["floor_forward_ms", "floor_fraction_forward"]


class DemoTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        done = subprocess.run([DEMO, "--bin", os.environ["SCANSERVE_BIN_DIR"]],
                              stdout=subprocess.PIPE, text=True, timeout=RUN_LIMIT_S, check=False)
        print(done.stdout)
        cls.code = done.returncode
        cls.lines = dict(re.findall(r"^(\w+): (.+)$", done.stdout, re.MULTILINE))

    def figure(self, name):
        self.assertIn(name, self.lines)
        value = float(self.lines[name].split()[0])
        self.assertTrue(math.isfinite(value), f"{name}: {value}")
        return value

    def test_the_demo_succeeds(self):
        self.assertEqual(self.code, 0)
        self.assertEqual(self.lines.get("result"), "ok")

    def test_every_error_is_printed_and_within_the_tolerance(self):
        tolerance = self.figure("tolerance")
        for name in ERRORS:
            self.assertLessEqual(self.figure(name), tolerance, name)
            # Two independent computations in different precisions never agree to the last bit.
            self.assertGreater(self.figure(name), 0, name)

    def test_every_time_and_size_is_printed(self):
        for name in [*TIMES, *FLOOR, *BYTES, "device_peak_bytes"]:
            self.assertGreater(self.figure(name), 0, name)

    def test_bytes_on_the_wire_hold_the_tensors(self):
        batch, seqlen, dim = (int(value) for value in re.search(
            r"batch=(\d+),seqlen=(\d+),dim=(\d+)", self.lines["case"]).groups())
        sequence = 4 * batch * seqlen * dim
        self.assertGreater(self.figure("request_bytes"), 2 * sequence)  # u, delta
        self.assertGreater(self.figure("response_bytes"), sequence)  # y
        self.assertGreater(self.figure("backward_request_bytes"), 3 * sequence)  # and dy
        self.assertGreater(self.figure("backward_response_bytes"), 2 * sequence)  # du, ddelta


if __name__ == "__main__":
    unittest.main(verbosity=2)
