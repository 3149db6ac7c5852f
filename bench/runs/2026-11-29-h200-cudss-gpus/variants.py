import sys, os, json, ctypes as ct, time

sys.path.insert(0, "bench/python")
import numpy as np, cupy as cp, scipy.sparse as sp
from cupyx.scipy.sparse import csr_matrix

LIBRARY = os.environ["KRYLITH_CUDSS"]
import pathlib

THREADS = pathlib.Path(LIBRARY).with_name("libcudss_mtlayer_gomp.so.1")
F32, F64, I32, I64 = 0, 1, 10, 24
TYPES = {"gen": (0, 0), "sym": (1, 2), "spd": (3, 2)}


def laplace(*n):
    a = sp.csr_matrix((1, 1))
    for k in n:
        d = sp.diags([-1, 2, -1], [-1, 0, 1], shape=(k, k))
        a = sp.kron(a, sp.eye(k)) + sp.kron(sp.eye(a.shape[0]), d) if a.shape[0] > 1 or a.nnz else d
    return sp.csr_matrix(a)


lib = ct.CDLL(LIBRARY)


def call(name, *a):
    code = getattr(lib, name)(*a)
    if code:
        raise RuntimeError(f"{name}: {code}")


class C:
    def __init__(s, a, kind, devices=None, real=F64, opts={}, nthreads=None):
        n = a.shape[0]
        s.a = a
        dt = cp.float64 if real == F64 else cp.float32
        s.vals = a.data.astype(dt)
        s.rp = a.indptr.astype(cp.int64)
        s.x = cp.zeros(n, dt)
        s.b = cp.zeros(n, dt)
        s.h, s.c, s.d = ct.c_void_p(), ct.c_void_p(), ct.c_void_p()
        if devices:
            call("cudssCreateMg", ct.byref(s.h), len(devices), (ct.c_int * len(devices))(*devices))
        else:
            call("cudssCreate", ct.byref(s.h))
        call("cudssSetThreadingLayer", s.h, str(THREADS).encode())
        call("cudssConfigCreate", ct.byref(s.c))
        call("cudssDataCreate", s.h, ct.byref(s.d))
        s.set(14, nthreads or len(os.sched_getaffinity(0)))
        if devices:
            s.set(21, len(devices))
            arr = (ct.c_int * len(devices))(*devices)
            call("cudssConfigSet", s.c, 22, arr, ct.c_size_t(4 * len(devices)))
        for k, v in opts.items():
            s.set(k, v)
        s.m, s.sx, s.sb = ct.c_void_p(), ct.c_void_p(), ct.c_void_p()
        p = lambda v: ct.c_void_p(v.data.ptr)
        call(
            "cudssMatrixCreateCsr",
            ct.byref(s.m),
            *[ct.c_int64(v) for v in (n, n, a.nnz)],
            p(s.rp),
            None,
            p(a.indices),
            p(s.vals),
            I64,
            I32,
            real,
            *TYPES[kind],
            0,
        )
        for hd, v in ((s.sx, s.x), (s.sb, s.b)):
            call("cudssMatrixCreateDn", ct.byref(hd), *[ct.c_int64(v) for v in (n, 1, n)], p(v), real, 0)

    def set(s, k, v):
        call("cudssConfigSet", s.c, k, ct.byref(ct.c_int(v)), ct.c_size_t(4))

    def run(s, ph):
        call("cudssExecute", s.h, ph, s.c, s.d, s.m, s.sx, s.sb)

    def get(s, k, n, t=np.int32):
        out = np.zeros(n, t)
        w = ct.c_size_t()
        call(
            "cudssDataGet", s.h, s.d, k, out.ctypes.data_as(ct.c_void_p), ct.c_size_t(out.nbytes), ct.byref(w)
        )
        return out

    def give(s, k, v):
        call("cudssDataSet", s.h, s.d, k, v.ctypes.data_as(ct.c_void_p), ct.c_size_t(v.nbytes))

    def close(s):
        for m in (s.m, s.sx, s.sb):
            call("cudssMatrixDestroy", m)
        call("cudssDataDestroy", s.h, s.d)
        call("cudssConfigDestroy", s.c)
        call("cudssDestroy", s.h)


def sync():
    for i in range(cp.cuda.runtime.getDeviceCount()):
        with cp.cuda.Device(i):
            cp.cuda.Device().synchronize()


def timed(f):
    sync()
    t = time.perf_counter()
    f()
    sync()
    return time.perf_counter() - t


def used():
    o = []
    for i in range(cp.cuda.runtime.getDeviceCount()):
        with cp.cuda.Device(i):
            f, t = cp.cuda.runtime.memGetInfo()
            o.append(round((t - f) / 2**20))
    return o


def one(name, a, kind, **kw):
    label = kw.pop("label", "")
    perm = kw.pop("perm", None)
    try:
        m0 = used()
        s = C(a, kind, **kw)
        if perm is not None:
            s.set(3, 0)
            s.set(17, perm[2])
            s.give(9, perm[0])
            s.give(21, perm[1])
        s.b[:] = cp.asarray(np.random.default_rng(1).standard_normal(a.shape[0]))
        r = timed(lambda: s.run(1))
        y = timed(lambda: s.run(2))
        f = timed(lambda: s.run(4))
        m = used()
        so = min(timed(lambda: s.run(0x3F0)) for _ in range(5))
        n = min(timed(lambda: s.run(8)) for _ in range(3))
        res = float(
            cp.linalg.norm(s.b.astype(cp.float64) - a @ s.x.astype(cp.float64))
            / cp.linalg.norm(s.b.astype(cp.float64))
        )
        print(
            f"{name:14s} {label:18s} reorder {r:.3f} symbolic {y:.3f} factor {f:.4f} new {n:.4f} solve {so * 1e3:.2f} ms res {res:.1e} nnz {s.get(1, 1, np.int64)[0] / 1e6:.0f}M mem {[q - p for p, q in zip(m0, m)]}",
            flush=True,
        )
        out = s
        return s
    except Exception as e:
        print(name, label, "failed", e, flush=True)


def conv(a):
    n = a.shape[0]
    return csr_matrix((a.get() + sp.diags([0.3, -0.3], [-1, 1], shape=(n, n))).tocsr())


nd = cp.cuda.runtime.getDeviceCount()
for name, mk, kind in [
    ("warm", lambda: laplace(20, 20, 20), "spd"),
    ("laplace64", lambda: laplace(64, 64, 64), "spd"),
    ("conv64", lambda: laplace(64, 64, 64), "gen"),
    ("laplace64x4", lambda: sp.csr_matrix(sp.kron(laplace(64, 64, 64), np.eye(4) + 0.2)), "spd"),
    ("laplace100", lambda: laplace(100, 100, 100), "spd"),
    ("laplace1000", lambda: laplace(1000, 1000), "spd"),
]:
    h = mk()
    h.sort_indices()
    a = csr_matrix(h)
    if kind == "gen":
        a = conv(a)
    s = one(name, a, kind, label="f64")
    if s:
        n = a.shape[0]
        try:
            lv = 10
            s.close()
            t = C(a, kind, opts={17: lv})
            t.run(1)
            P = t.get(24, (1 << lv) - 1) if 0 else None
            perm = t.get(4, n)
            tree = t.get(22, (1 << lv) - 1)
            t.close()
            s2 = one(name, a, kind, label="own perm back", perm=(perm, tree, lv))
            s2 and s2.close()
            for th in (1, 4):
                s2 = one(name, a, kind, label=f"perm, {th} threads", perm=(perm, tree, lv), nthreads=th)
                s2 and s2.close()
        except Exception as e:
            print("perm:", e)
    s = one(name, a, kind, label="f32", real=F32)
    s and s.close()
    s = one(name, a, kind, label="downcast 1", opts={28: 1})
    s and s.close()
    s = one(name, a, kind, label="deterministic", opts={24: 1})
    s and s.close()
    if nd > 1:
        s = one(name, a, kind, label="MG 1", devices=[0])
        s and s.close()
        s = one(name, a, kind, label="MG 2", devices=list(range(nd)))
        s and s.close()
    del a
    cp.get_default_memory_pool().free_all_blocks()
