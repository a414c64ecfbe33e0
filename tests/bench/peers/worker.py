"""One framework at one thread count, in a process of its own: worker.py FRAMEWORK THREADS INPUTS.

Answers each line of standard input with a line of JSON. First, unasked: {"version", "peers"}.
  time NAME        {"ms"} of one call
  save NAME FILE   {} once y lies in FILE (.npy)
"""

import importlib
import json
import os
import sys
import time

import numpy as np


def main():
    framework, threads, inputs = sys.argv[1], int(sys.argv[2]), dict(np.load(sys.argv[3]))
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    module = importlib.import_module(f"{framework}_peers")
    peers = module.peers(inputs, threads)

    def answer(value):
        print(json.dumps(value), flush=True)

    answer({"version": module.VERSION, "peers": list(peers)})
    for line in sys.stdin:
        command, name, *rest = line.rstrip("\n").split("\t")
        if command == "time":
            begin = time.perf_counter()
            peers[name]()
            answer({"ms": (time.perf_counter() - begin) * 1e3})
        elif command == "save":
            np.save(rest[0], np.asarray(peers[name]()))
            answer({})


if __name__ == "__main__":
    main()
