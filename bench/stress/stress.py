#!/usr/bin/env python3
"""Thousands of processes and solves on a GPU, under a watchdog that records the stacks of a hanging process.

    stress.py --cuda TEST-BINARY [--seconds 500] [--state FOLDER] [--parts cold,warm,solves,python]

TEST-BINARY is the test `cuda` of crate krylith, which has no embedded kernels. Parts:

    cold    40 starts with an empty kernel cache: three systems each, the last in blocks on the device
    warm    400 starts with a warm cache
    solves  100,000 solves of systems of changing kind with at most 20,000 unknowns, in successive processes
    python  3 systems from CuPy's arrays per process, with an empty and a warm cache; needs package and CuPy

The process that solves checks every answer. Each call ends after `--seconds`; its state is kept in FOLDER, so
that the next call continues there. If a process is silent for `--silence` seconds, its threads are recorded
(from /proc, and by gdb and py-spy if installed), and it is ended. The results go to summary.json in $OUT, or
in FOLDER.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
WANTED = {"cold": 40, "warm": 400, "solves": 100_000, "python": 40}
# Systems of one process of the part `solves`; ten solves each.
SYSTEMS = 10_000


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--cuda", required=True, type=pathlib.Path, help="the test binary")
    words.add_argument("--seconds", type=float, default=500, help="no process is started after so many")
    words.add_argument("--silence", type=float, default=60, help="the longest time without a sign of life")
    words.add_argument("--state", type=pathlib.Path, default=pathlib.Path("target/stress"))
    words.add_argument("--parts", default="cold,warm,solves,python")
    words.add_argument("--at-once", type=int, default=4, help="processes at a time of the parts warm and python")
    asked = words.parse_args()
    stress = Stress(asked)
    for part in asked.parts.split(","):
        stress.run(part)
    return stress.finish()


class Stress:
    def __init__(self, asked):
        self.asked = asked
        self.end = time.monotonic() + asked.seconds
        self.lock = threading.Lock()
        asked.state.mkdir(parents=True, exist_ok=True)
        self.file = asked.state / "state.json"
        self.state = json.loads(self.file.read_text()) if self.file.exists() else {"next": 0}
        for part in WANTED:
            self.state.setdefault(part, {"done": 0, "failed": [], "seconds": []})["under way"] = 0
        # A cache belongs to its user alone.
        self.cache = asked.state / "cache"
        self.cache.mkdir(mode=0o700, exist_ok=True)

    def left(self):
        return self.end - time.monotonic()

    def run(self, part):
        if part not in WANTED:
            sys.exit(f"--parts {part}: expected some of {', '.join(WANTED)}")
        if part == "python" and not has_python():
            self.state[part]["skipped"] = "no krylith package or no CuPy"
            return
        # Whoever compiles takes all cores, and many solves the whole GPU.
        workers = {"cold": 2, "solves": 1}.get(part, self.asked.at_once)
        threads = [threading.Thread(target=self.work, args=(part,)) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def work(self, part):
        of = self.state[part]
        while True:
            with self.lock:
                if of["done"] + len(of["failed"]) + of["under way"] >= WANTED[part] or self.left() < 5:
                    return
                of["under way"] += 1
                number = self.state["next"]
                self.state["next"] += SYSTEMS if part == "solves" else 1
            begin = time.monotonic()
            try:
                ended = self.start(part, number)
            finally:
                with self.lock:
                    of["under way"] -= 1
            with self.lock:
                of["seconds"].append(round(time.monotonic() - begin, 2))
                if "failure" in ended:
                    of["failed"].append({"number": number, **ended})
                    print(f"{part} {number}: {ended['failure']}", flush=True)
                else:
                    of["done"] += ended.get("solves", 1) if part == "solves" else 1
                self.save()

    def start(self, part, number):
        """One process: what its last line says, or how it failed."""
        with tempfile.TemporaryDirectory(prefix="krylith-stress-") as empty:
            cold = part == "cold" or (part == "python" and number % 2 == 0)
            environment = dict(os.environ, KRYLITH_CACHE=empty if cold else str(self.cache.resolve()))
            environment["KRYLITH_REQUIRE_GPU"] = "1"
            environment["KRYLITH_STRESS"] = f"{number}:{SYSTEMS}"
            environment["KRYLITH_STRESS_SECONDS"] = str(max(1.0, self.left() - 10))
            environment["KRYLITH_STRESS_SILENCE"] = str(0.75 * self.asked.silence)  # it tells more by itself
            if part == "python":
                command = [sys.executable, "-X", "faulthandler", str(HERE / "systems.py"), str(number)]
            else:
                test = "stress::solves" if part == "solves" else "stress::start"
                command = [str(self.asked.cuda.resolve()), test, "--exact", "--ignored", "--nocapture"]
            return watched(command, environment, self.asked.silence)

    def save(self):
        text = json.dumps(self.state)
        self.file.with_suffix(".new").write_text(text)
        self.file.with_suffix(".new").replace(self.file)

    def finish(self):
        self.save()
        summary = {"machine": machine(), "wanted": WANTED}
        for part in WANTED:
            of = self.state[part]
            seconds = sorted(of["seconds"])
            times = {"median": seconds[len(seconds) // 2], "longest": seconds[-1]} if seconds else {}
            summary[part] = {"done": of["done"], "failed": of["failed"], "seconds of a process": times}
            if "skipped" in of:
                summary[part]["skipped"] = of["skipped"]
        out = pathlib.Path(os.environ.get("OUT", self.asked.state))
        (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
        if out.resolve() != self.asked.state.resolve():
            shutil.copy(self.file, out)  # to go on elsewhere: the folder for --state
        failures = sum(len(self.state[part]["failed"]) for part in WANTED)
        for part in WANTED:
            print(f"{part}: {self.state[part]['done']} of {WANTED[part]}, {len(self.state[part]['failed'])} failed")
        return 1 if failures else 0


def watched(command, environment, silence):
    """Runs a process; silence is no line for so many seconds."""
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    lines, last = [], [time.monotonic()]

    def read():
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            del lines[:-200]
            last[0] = time.monotonic()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    said = None
    while process.poll() is None:
        time.sleep(0.05)
        if time.monotonic() - last[0] > silence:
            said = threads_of(process.pid)
            process.send_signal(signal.SIGABRT)  # Python's faulthandler tells its frames
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    reader.join(5)
    if said is not None:
        return {"failure": f"nothing for {silence:.0f} s", "threads": said, "output": lines}
    found = [line for line in lines if line.startswith("{")]
    if process.returncode != 0 or not found:
        return {"failure": f"exit code {process.returncode}", "output": lines}
    return json.loads(found[-1])


def threads_of(pid):
    """Where each thread of a process is, as far as this system tells."""
    told = []
    for task in sorted(pathlib.Path(f"/proc/{pid}/task").iterdir()):
        entry = {"thread": task.name}
        for name in ("comm", "wchan", "syscall", "stack"):
            try:
                entry[name] = (task / name).read_text().strip()
            except OSError as error:
                entry[name] = str(error)
        told.append(entry)
    for tool in (
        ["py-spy", "dump", "--native", "--pid", str(pid)],
        ["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 25"],
    ):
        if shutil.which(tool[0]):
            try:
                done = subprocess.run(tool, capture_output=True, text=True, timeout=60)
                told.append({"tool": tool[0], "said": done.stdout.splitlines()})
            except subprocess.TimeoutExpired:
                told.append({"tool": tool[0], "said": "no answer"})
    return told


def has_python():
    test = "import krylith, cupy; cupy.cuda.runtime.getDeviceCount()"
    return subprocess.run([sys.executable, "-c", test], capture_output=True).returncode == 0


def machine():
    if not shutil.which("nvidia-smi"):
        return {"gpu": "unknown", "cores": os.cpu_count()}
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return {"gpu": subprocess.run(query, capture_output=True, text=True).stdout.strip(), "cores": os.cpu_count()}


if __name__ == "__main__":
    sys.exit(main())
