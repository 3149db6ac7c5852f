"""One system, many solves: updates, threads, signals, forks, memory."""

import resource
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from scipy.sparse.linalg import spsolve

import krylith
from test_solve import close, poisson, random_matrix


def run(program):
    """Run a program in a new process, in which Krylith has not been used yet."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("block", [None, 1, 2, 3])
def test_new_values(block):
    A, b = random_matrix(60), np.ones(60)
    solver = krylith.Solver(A, rtol=1e-10, block=block)
    for k in range(3):
        new = A.copy()
        new.data = A.data * (1.0 + 0.1 * k) + (np.arange(A.nnz) % 3) * 1e-3
        solver.update_values(new if k < 2 else new.data)
        np.testing.assert_allclose(solver.solve(b).x, spsolve(new.tocsc(), b), rtol=1e-8)
    solver.update_values(A.tocsc())
    np.testing.assert_allclose(solver.solve(b).x, spsolve(A.tocsc(), b), rtol=1e-8)
    for refresh in ("keep", "rebuild"):
        solver.update_values(2 * A, refresh=refresh)
        np.testing.assert_allclose(solver.solve(b).x, spsolve(2 * A.tocsc(), b), rtol=1e-8)


def test_new_values_of_blocks():
    A = random_matrix(60, density=0.2).tobsr(blocksize=(3, 3))
    solver = krylith.Solver(A, rtol=1e-10)
    solver.update_values(A * 4.0)
    np.testing.assert_allclose(solver.solve(np.ones(60)).x, spsolve(4.0 * A.tocsc(), np.ones(60)), rtol=1e-8)


def test_wrong_values_are_refused_and_change_nothing():
    A, b = random_matrix(30), np.ones(30)
    solver = krylith.Solver(A, rtol=1e-10)
    exact = solver.solve(b).x
    other = random_matrix(30, seed=9)
    for wrong in (other, random_matrix(31), A.data[1:]):
        with pytest.raises(krylith.InvalidInput):
            solver.update_values(wrong)
    with pytest.raises(krylith.InvalidInput, match="unknown refresh"):
        solver.update_values(A, refresh="often")
    nan = A.copy()
    nan.data[3] = np.nan
    with pytest.raises(krylith.InvalidInput, match="nan|NaN"):
        solver.update_values(nan)
    np.testing.assert_allclose(solver.solve(b).x, exact, rtol=1e-12)


def test_options_of_one_solve():
    A, b = poisson(25), np.ones(625)
    solver = krylith.Solver(A, method="cg", precond="none", rtol=1e-4)
    loose = solver.solve(b)
    tight = solver.solve(b, rtol=1e-10)
    assert loose.target == 1e-4 and tight.target == 1e-10 and close(A, tight.x, b, 1e-10)
    assert solver.solve(b).iterations == loose.iterations < tight.iterations
    with pytest.warns(krylith.ConvergenceWarning):
        assert solver.solve(b, maxiter=2).iterations == 2
    with pytest.raises(krylith.InvalidInput, match="rtol"):
        solver.solve(b, rtol=-1.0)
    warm = solver.solve(b, tight.x)
    assert warm.iterations == 0


def test_threads_take_turns():
    A = random_matrix(200)
    solver = krylith.Solver(A, rtol=1e-10)
    rng = np.random.default_rng(1)
    sides = rng.standard_normal((4, 20, 200))
    answers = np.zeros_like(sides)

    def work(t):
        for k in range(20):
            answers[t, k] = solver.solve(sides[t, k]).x

    threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    exact = spsolve(A.tocsc(), sides.reshape(-1, 200).T).T.reshape(sides.shape)
    np.testing.assert_allclose(answers, exact, rtol=1e-7, atol=1e-10)


def test_other_threads_run_while_one_solves():
    n = 60
    solver = krylith.Solver(poisson(n), method="cg", precond="none", rtol=1e-14, maxiter=100_000)
    b, ticks, done = np.ones(n * n), [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    begin = time.perf_counter()
    while time.perf_counter() - begin < 0.3:
        solver.solve(b, rtol=1e-8)
    done.set()
    thread.join()
    assert len(ticks) > 20, "a solve keeps the interpreter's lock"


def test_another_thread_cancels():
    n = 150
    solver = krylith.Solver(poisson(n), method="cg", precond="none", rtol=1e-30, maxiter=10_000_000)
    threading.Timer(0.2, solver.cancel).start()
    with pytest.warns(krylith.ConvergenceWarning):
        # Without the delay in the callback the solve could end at the rounding limit before it is cancelled.
        s = solver.solve(np.ones(n * n), callback=lambda i, r: time.sleep(0.001))
    assert s.outcome == "interrupted"


def test_a_callback_cannot_use_its_own_solver():
    A, b = random_matrix(30), np.ones(30)
    solver, other = krylith.Solver(A), krylith.Solver(A)
    seen = []
    solver.solve(b, callback=lambda i, r: seen.append(other.solve(b).x) and None)
    assert len(seen) > 0
    with pytest.raises(krylith.InvalidInput, match="the solver that calls it"):
        solver.solve(b, callback=lambda i, r: solver.solve(b))
    assert solver.solve(b).converged


def test_a_callback_of_a_callback_cannot_either():
    done = run(
        """
        import numpy as np, scipy.sparse as sp, krylith
        A = sp.diags_array([-1.0, 4.0, -1.0], offsets=[-1, 0, 1], shape=(50, 50)).tocsr()
        b = np.ones(50)
        first, second = (krylith.Solver(A, method="gmres", precond="none", rtol=1e-12) for _ in range(2))

        def uses_first(*_):
            try:
                first.solve(b)
            except krylith.InvalidInput as e:
                print("the solver that calls it" in str(e))
            return True

        def after_another(*_):
            second.solve(b, callback=lambda i, r: None)
            return uses_first()

        def inside_another(*_):
            second.solve(b, callback=uses_first)
            return True

        import warnings
        warnings.simplefilter("ignore")
        for callback in (after_another, inside_another):
            print(first.solve(b, callback=callback).outcome)
        print(first.solve(b).outcome, second.solve(b, callback=lambda i, r: first.multiply(b) is None).outcome)
        """
    )
    assert done.stdout.split() == ["True", "interrupted", "True", "interrupted", "converged", "converged"], done.stdout + done.stderr


def test_ctrl_c_ends_a_set_up_and_new_values():
    done = run(
        """
        import os, signal, threading, time
        import numpy as np, scipy.sparse as sp, krylith
        n = 30
        T = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
        E = sp.eye_array(n)
        A = (sp.kron(sp.kron(T, E), E) + sp.kron(sp.kron(E, T), E) + sp.kron(sp.kron(E, E), T) + 0.01 * sp.eye_array(n**3, k=1)).tocsr()

        def timed(call):
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            begin = time.perf_counter()
            try:
                call()
                print("not interrupted")
            except krylith.Interrupted as e:
                print(e.solution is None, time.perf_counter() - begin < 2.0)

        timed(lambda: krylith.Solver(A, precond="lu"))
        timed(lambda: krylith.solve(A, np.ones(n**3), precond="lu"))
        """
    )
    assert done.stdout.split() == ["True"] * 4, done.stdout + done.stderr


def test_ctrl_c_while_new_values_are_taken_is_raised_after_them():
    done = run(
        """
        import _thread, threading, time
        import numpy as np, scipy.sparse as sp, krylith
        n = 150
        T = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
        A = (sp.kron(T, sp.eye_array(n)) + sp.kron(sp.eye_array(n), T)).tocsr()
        solver = krylith.Solver(A, precond="lu")
        stop = False
        def press():
            while not stop:
                _thread.interrupt_main()
                time.sleep(0.05)
        thread, seen = threading.Thread(target=press), 0
        try:
            thread.start()
            while True:
                solver.update_values(2 * A)
        except KeyboardInterrupt as e:
            seen = 1
        while True:
            try:
                stop = True
                thread.join()
                break
            except KeyboardInterrupt:
                pass
        try:
            time.sleep(0.2)
        except KeyboardInterrupt:
            pass
        solver.update_values(A)
        s = solver.solve(np.ones(n * n), rtol=1e-10)
        print(seen, s.converged, bool(np.linalg.norm(A @ s.x - 1) < 1e-8 * n))
        """
    )
    assert done.stdout.split() == ["1", "True", "True"], done.stdout + done.stderr


def test_ctrl_c_gives_the_best_x():
    done = run(
        """
        import os, signal, threading, time
        import numpy as np, scipy.sparse as sp, krylith
        n = 300
        T = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
        A = sp.kron(T, sp.eye_array(n)) + sp.kron(sp.eye_array(n), T)
        solver = krylith.Solver(A, method="gmres", precond="none", rtol=1e-6, maxiter=100_000)
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            solver.solve(np.ones(n * n), callback=lambda i, r: time.sleep(0.01))
        except krylith.Interrupted as e:
            s = e.solution
            print(s.outcome, s.iterations > 0, s.true_residual < 1, np.isfinite(s.x).all() and abs(s.x).max() > 0)
        else:
            print("not interrupted")
        print(solver.solve(np.ones(n * n), maxiter=20).outcome)
        """
    )
    assert done.stdout.split() == ["interrupted", "True", "True", "True", "max-iterations"], done.stdout + done.stderr


def test_handlers_of_other_signals_raise_through():
    done = run(
        """
        import signal, time
        import numpy as np, scipy.sparse as sp, krylith
        def alarm(*_): raise TimeoutError("too long")
        signal.signal(signal.SIGALRM, alarm)
        A = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(5000, 5000))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)  # from here on, however slow the machine was until now
            krylith.solve(A, np.ones(5000), method="cg", precond="none", callback=lambda i, r: time.sleep(0.01))
        except TimeoutError as e:
            print(e)
        """
    )
    assert done.stdout == "too long\n", done.stdout + done.stderr


def test_a_fork_after_use_is_refused_and_ends():
    done = run(
        """
        import os, sys
        import numpy as np, scipy.sparse as sp, krylith
        A = sp.eye_array(2000, format="csr") * 2.0
        solver = krylith.Solver(A)
        solver.solve(np.ones(2000))
        pid = os.fork()
        if pid == 0:
            for use in (lambda: solver.solve(np.ones(2000)), lambda: krylith.solve(A, np.ones(2000))):
                try:
                    use()
                except krylith.DeviceError as e:
                    print("spawn" in str(e), flush=True)
            sys.exit(0)  # drops the solver
        print(os.waitpid(pid, 0)[1], solver.solve(np.ones(2000)).converged)
        """
    )
    assert done.stdout.split() == ["True", "True", "0", "True"], done.stdout + done.stderr


def test_a_fork_before_use_is_fine():
    done = run(
        """
        import multiprocessing as mp
        import numpy as np, scipy.sparse as sp, krylith
        def work(k):
            return float(krylith.solve(sp.eye_array(500, format="csr") * 2.0, np.full(500, k), rtol=1e-12).x[0])
        if __name__ == "__main__":
            with mp.get_context("fork").Pool(2) as pool:
                print(pool.map(work, [1.0, 2.0]))
        """
    )
    assert done.stdout.strip() == "[0.5, 1.0]", done.stdout + done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ten_thousand_solves_do_not_grow():
    A, b = random_matrix(100), np.ones(100)
    solver = krylith.Solver(A)

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    for _ in range(1000):
        solver.solve(b)
        krylith.solve(A, b)
    before = resident()
    for _ in range(5000):
        solver.solve(b)
        krylith.solve(A, b)
    assert resident() - before < 4 << 20, f"{(resident() - before) >> 20} MiB more"
