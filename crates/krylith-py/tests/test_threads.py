"""`threads` bounds the threads of a whole call; the test counts the tasks of a new process."""

import subprocess
import sys

import pytest

PROGRAM = '''
import os, threading
import numpy as np, scipy.sparse as sp, scipy.sparse.linalg
import krylith

def laplace(n):
    d = sp.diags_array([-1.0, 2.01, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    one = sp.eye_array(n)
    return (sp.kron(sp.kron(d, one), one) + sp.kron(sp.kron(one, d), one) + sp.kron(sp.kron(one, one), d)).tocsr()

def tasks():
    return len(os.listdir("/proc/self/task"))

most, done = 0, threading.Event()
def watch():
    global most
    while not done.is_set():
        first = tasks()
        done.wait(0.002)
        most = max(most, min(first, tasks()))  # one that has ended is listed for a moment more

A = laplace(42)
b = np.ones(A.shape[0])
before = tasks()
watcher = threading.Thread(target=watch)
watcher.start()
threads = THREADS
for options in ({}, {"precond": "amg", "method": "cg"}, {"precond": "ras"}, {"zeros": "drop"}):
    solver = krylith.Solver(A, device="cpu", threads=threads, **options)
    assert solver.solve(b).converged
    solver.update_values(2 * A)
    solver.update_values(2 * A.data)
    assert solver.solve(b).converged
    del solver
assert krylith.solve(laplace(4), np.ones(64), device="cpu", threads=threads).converged
K = laplace(20)
s = krylith.newton(lambda u: K @ u + u**3 - 1, lambda u: K + sp.diags_array(3 * u**2), np.zeros(K.shape[0]), device="cpu", threads=threads)
assert s.converged
for operator in (A, sp.linalg.aslinearoperator(A)):
    _, info = krylith.cg(operator, b, threads=threads)
    assert info == 0
done.set()
watcher.join()
left = []
for task in os.listdir("/proc/self/task"):
    try:
        left.append(open(f"/proc/self/task/{task}/comm").read().strip())
    except FileNotFoundError:
        pass  # the thread has ended since it was listed
print(most - before - 1, len(left) - before, sorted(left))
'''


@pytest.mark.skipif(sys.platform != "linux", reason="counts tasks in /proc")
@pytest.mark.parametrize("threads", [1, 2])
def test_threads_bounds_all_of_a_call(threads):
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("THREADS", str(threads))], capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    most, left, _ = ran.stdout.split(" ", 2)
    # Besides the threads of a solver's loops and regions there are three: one for the set-up, one that
    # waits for direct factors, and one for small systems.
    assert int(most) <= 2 * threads - 1 + 3, ran.stdout
    assert int(left) <= 1, ran.stdout
