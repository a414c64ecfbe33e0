"""Times ours against JAX and PyTorch on the same cores, interleaved in one run.

Each round calls every peer once at each thread count, local and in memory, then ours: remote over
TCP with all its transport, by the C++ client and by tritonclient, and in process. Prints a table, the
versions and the ratio of ours to the best peer; --json writes the same as JSON. Exits with 1 where
results disagree or ours is not faster. Started by run.sh.
"""

import argparse
import contextlib
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import tritonclient.grpc as triton

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "interop"))
import server_process  # noqa: E402

FRAMEWORKS = ("jax", "torch")
AGREEMENT = 1e-5
SLOW = 5
OURS_REMOTE = "ours, remote"
SCANBENCH_NOT_STABLE = 2


def parse_case(text):
    """'selective_scan_fwd:fp32:batch=4,seqlen=2048,dim=512,dstate=16' -> axes."""
    model, dtype, axes = text.split(":")[:3]
    if (model, dtype) != ("selective_scan_fwd", "fp32"):
        raise argparse.ArgumentTypeError(f"no peers for {model}:{dtype}")
    return {name: int(value) for name, value in (axis.split("=") for axis in axes.split(","))}


def make_inputs(axes):
    batch, seqlen, dim, dstate = (axes[name] for name in ("batch", "seqlen", "dim", "dstate"))
    random = np.random.default_rng(7)
    inputs = {
        "u": random.standard_normal((batch, seqlen, dim)),
        "delta": random.uniform(0.001, 0.1, (batch, seqlen, dim)),
        "A": random.uniform(-8, -0.5, (dim, dstate)),
        "B": random.standard_normal((batch, seqlen, dstate)),
        "C": random.standard_normal((batch, seqlen, dstate)),
    }
    return {name: value.astype(np.float32) for name, value in inputs.items()}


class Worker:
    """worker.py as a context manager."""

    def __init__(self, framework, threads, inputs_file):
        self._process = subprocess.Popen(
            [sys.executable, HERE / "worker.py", framework, str(threads), inputs_file],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        hello = self._read()
        self.version, self.peers, self.threads = hello["version"], hello["peers"], threads

    def _read(self):
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a peer's process ended")
        return json.loads(line)

    def ask(self, *words):
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()
        return self._read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait(timeout=60)


class TritonCaller:
    """Ours through tritonclient."""

    name = "ours, remote, tritonclient"

    def __init__(self, address, inputs):
        self._client = triton.InferenceServerClient(address)
        self._tensors = []
        for name, value in inputs.items():
            tensor = triton.InferInput(name, value.shape, "FP32")
            tensor.set_data_from_numpy(value)
            self._tensors.append(tensor)
        self._outputs = [triton.InferRequestedOutput("y")]

    def y(self):
        result = self._client.infer("selective_scan_fwd", self._tensors, outputs=self._outputs)
        return result.as_numpy("y")

    def time_ms(self):
        begin = time.perf_counter()
        self.y()
        return (time.perf_counter() - begin) * 1e3


class ScanbenchCaller:
    """Ours as scanbench measures it: through the C++ client, or (no address) in process."""

    def __init__(self, bin_dir, axes, folder, address=None):
        self.name = OURS_REMOTE if address else "ours, in process"
        self._report = pathlib.Path(folder) / "scanbench.json"
        self._command = [
            pathlib.Path(bin_dir) / "scanbench", "matrix", "--mode=fwd", "--impl=fused",
            "--no-check", "--samples=3", f"--batch={axes['batch']}", f"--seq={axes['seqlen']}",
            f"--dim={axes['dim']}", f"--state={axes['dstate']}", f"--json={self._report}",
            *([f"--server={address}"] if address else [])]

    def time_ms(self):
        done = subprocess.run(self._command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode not in (0, SCANBENCH_NOT_STABLE):
            raise RuntimeError(f"scanbench failed:\n{done.stdout}")
        return json.loads(self._report.read_text())["median_ms"]


def measure(rounds, workers, callers):
    """(name, threads) -> milliseconds of each round; everything takes its turn in each round.

    One round first, untimed, compiles and warms up. A formulation that takes SLOW times the fastest
    one at every thread count leaves after the first timed round, so that a run stays short.
    """
    times = {}
    slow = set()
    for round_number in range(rounds + 1):
        for worker in workers:
            for name in worker.peers:
                if name not in slow:
                    ms = worker.ask("time", name)["ms"]
                    times.setdefault((name, worker.threads), []).append(ms)
        if round_number == 1:
            best = {}
            for (name, _), values in times.items():
                if not name.startswith("ours"):
                    best[name] = min(best.get(name, math.inf), values[-1])
            slow = {name for name, ms in best.items() if ms > SLOW * min(best.values())}
        for caller in callers:
            times.setdefault((caller.name, 0), []).append(caller.time_ms())
        print(f"round {round_number} of {rounds}", file=sys.stderr)
    return {key: values[1:] for key, values in times.items()}


def disagreements(workers, y, folder):
    """Sentences about peers whose y is not ours."""
    found = []
    for worker in workers:
        for name in worker.peers:
            file = pathlib.Path(folder) / "y.npy"
            worker.ask("save", name, str(file))
            error = float(np.abs(np.load(file) - y).max() / np.abs(y).max())
            if not error <= AGREEMENT:
                found.append(f"{name}: y differs from ours by {error:.1e}")
    return found


def report(times, versions, case, rounds):
    """The JSON report."""
    rows = [
        {"name": name, "threads": threads, "best_ms": min(ms), "median_ms": statistics.median(ms)}
        for (name, threads), ms in times.items()
    ]
    rows.sort(key=lambda row: row["best_ms"])
    ours = next(row for row in rows if row["name"] == OURS_REMOTE)
    peer = next(row for row in rows if not row["name"].startswith("ours"))
    return {
        "case": case,
        "rounds": rounds,
        "cores": len(os.sched_getaffinity(0)),
        "versions": versions,
        "rows": rows,
        "best_peer": peer["name"],
        "best_peer_over_ours": peer["best_ms"] / ours["best_ms"],
    }


def print_table(result):
    print(f"{result['case']}, {result['cores']} cores, {result['rounds']} rounds, interleaved")
    print("; ".join(result["versions"]))
    print(f"{'':34}{'threads':>8}{'best ms':>10}{'median ms':>11}")
    for row in result["rows"]:
        print(f"{row['name']:34}{row['threads'] or 'all':>8}{row['best_ms']:10.1f}"
              f"{row['median_ms']:11.1f}")
    print(f"best peer ({result['best_peer']}) / ours, remote: {result['best_peer_over_ours']:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True, help="folder with scanserved and scanbench")
    parser.add_argument("--case",
                        default="selective_scan_fwd:fp32:batch=4,seqlen=2048,dim=512,dstate=16")
    parser.add_argument("--server", help="HOST:PORT of a running server (default: starts one)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, nargs="+",
                        default=sorted({1, len(os.sched_getaffinity(0))}))
    parser.add_argument("--json", type=pathlib.Path, help="file for the report")
    flags = parser.parse_args()
    axes = parse_case(flags.case)
    inputs = make_inputs(axes)

    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        inputs_file = os.path.join(folder, "inputs.npz")
        np.savez(inputs_file, **inputs)
        address = flags.server or stack.enter_context(
            server_process.ServerProcess(flags.bin)).address
        workers = [stack.enter_context(Worker(framework, threads, inputs_file))
                   for framework in FRAMEWORKS for threads in flags.threads]
        by_triton = TritonCaller(address, inputs)
        callers = [ScanbenchCaller(flags.bin, axes, folder, address),
                   ScanbenchCaller(flags.bin, axes, folder), by_triton]
        times = measure(flags.rounds, workers, callers)
        wrong = disagreements(workers, by_triton.y(), folder)
        versions = [f"python {platform.python_version()}",
                    *dict.fromkeys(worker.version for worker in workers),
                    f"numpy {np.__version__}",
                    f"tritonclient {importlib.metadata.version('tritonclient')}"]

    result = report(times, versions, flags.case, flags.rounds)
    print_table(result)
    print("\n".join(wrong) or "every peer's y agrees with ours")
    if flags.json:
        flags.json.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if wrong or result["best_peer_over_ours"] <= 1 else 0


if __name__ == "__main__":
    sys.exit(main())
