#!/usr/bin/env python3
"""Runs the example jobs on the CPU, on the GPU and with `--device auto`, in turn, as whole
processes, and prints a table of the times, and of what auto takes compared with the better
of the two.

    python3 devices.py --gstream ../../gstream --data /data/sf10 --runs 3

--other PATH also runs another program, such as an older gstream, on both devices, and prints
what the first takes compared with it. It exits with 1 when a run fails.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpu import ETL, HERE, TPCH


def seconds(program, job, device, data, out):
    start = time.perf_counter()
    subprocess.run([program, "run", HERE.parent / ("etl" if job in ETL else "tpch") / f"{job}.yaml", "--device", device,
                    "--progress", "none", "--overwrite", "--set", f"data={data}", "--set", f"out={out}"], check=True, capture_output=True)
    return time.perf_counter() - start


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--gstream", default="gstream")
    p.add_argument("--other", default=None)
    p.add_argument("--data", required=True)
    p.add_argument("--jobs", default=",".join(ETL + TPCH))
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--warmup", type=int, default=1)
    p.add_argument("--tmp", default=None)
    p.add_argument("--json", default=None)
    args = p.parse_args()
    engines = {d: (args.gstream, d) for d in ("host", "cuda", "auto")}
    ratios = {"auto / better": lambda t: t["auto"] / min(t["host"], t["cuda"])}
    if args.other:
        engines |= {f"{d}, other": (args.other, d) for d in ("host", "cuda")}
        ratios |= {f"{d} / other": lambda t, d=d: t[d] / t[f"{d}, other"] for d in ("host", "cuda")}
    results, failed = {}, []
    print("| job | " + " | ".join([f"{e} s" for e in engines] + list(ratios)) + " |" + "\n|---" + "|---" * (len(engines) + len(ratios)) + "|")
    with tempfile.TemporaryDirectory(dir=args.tmp) as tmp:
        for job in args.jobs.split(","):
            times = {e: [] for e in engines}
            try:
                for i in range(args.warmup + args.runs):
                    for e, (program, device) in engines.items():
                        took = seconds(program, job, device, args.data, Path(tmp) / "out.parquet")
                        if i >= args.warmup:
                            times[e].append(took)
            except subprocess.CalledProcessError as err:
                print(f"| {job} | failed: {err.stderr.decode().strip()} |", flush=True)
                failed.append(job)
                continue
            results[job] = {e: statistics.median(t) for e, t in times.items()}
            print(f"| {job} | " + " | ".join([f"{t:.3f}" for t in results[job].values()] + [f"{r(results[job]):.2f}" for r in ratios.values()]) + " |",
                  flush=True)
    for name, r in ratios.items():
        if all_of := [r(t) for t in results.values()]:
            print(f"\n{name}: geometric mean {statistics.geometric_mean(all_of):.2f}, worst {max(all_of):.2f}")
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=1))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
