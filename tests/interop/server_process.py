"""A scanserved of the build under test, on loopback and on ports that the system chose."""

import os
import pathlib
import signal
import subprocess
import tempfile
import time

START_LIMIT_S = 30
STOP_LIMIT_S = 30


class ServerProcess:
    """Starts on entry; on exit stops the server and insists on exit code 0."""

    def __init__(self, bin_dir, *flags):
        self._bin_dir = pathlib.Path(bin_dir)
        self._flags = flags

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="scanserve-")
        port_file = pathlib.Path(self._folder.name) / "ports"
        self.log = pathlib.Path(self._folder.name) / "log"
        command = [self._bin_dir / "scanserved", "--grpc-address=127.0.0.1", "--grpc-port=0",
                   "--metrics-address=127.0.0.1", "--metrics-port=0", f"--port-file={port_file}",
                   *self._flags]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            ports = self._wait_for_ports(port_file)
        except BaseException:
            self._process.kill()
            self._process.wait()
            self._folder.cleanup()
            raise
        self.address = f"127.0.0.1:{ports['grpc']}"
        self.metrics_url = f"http://127.0.0.1:{ports['metrics']}/metrics"
        return self

    def __exit__(self, kind, error, trace):
        try:
            self._process.send_signal(signal.SIGTERM)
            code = self._process.wait(STOP_LIMIT_S)
            if code != 0 and error is None:
                raise AssertionError(f"scanserved exited with {code}:\n{self.log.read_text()}")
        finally:
            self._process.kill()
            self._process.wait()
            self._folder.cleanup()

    def _wait_for_ports(self, port_file):
        limit = time.monotonic() + START_LIMIT_S
        while time.monotonic() < limit:
            if self._process.poll() is not None:
                break
            if port_file.exists():
                lines = port_file.read_text().split()
                ports = dict(line.split("=", 1) for line in lines if "=" in line)
                if {"grpc", "metrics"} <= ports.keys():
                    return ports
            time.sleep(0.02)
        raise RuntimeError(f"scanserved did not start:\n{self.log.read_text()}")


def bin_dir():
    """The folder of the build under test."""
    return os.environ["SCANSERVE_BIN_DIR"]
