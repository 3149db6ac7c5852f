"""Draws the pictures of docs/physics.md from the programs on that page: `python3 physics.py FOLDER`.

It needs Krylith, SciPy, Matplotlib and Pillow, and takes a minute on two cores. Names after the folder, such as
`stokes iterations`, limit it to these pictures.
"""

import io
import pathlib
import re
import sys

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

PAGE = pathlib.Path(__file__).resolve().parent.parent / "physics.md"
plt.rcParams.update({"svg.fonttype": "path", "svg.hashsalt": "krylith", "font.size": 9, "axes.titlesize": 9.5})


def functions():
    """Return the functions of the programs, without the loops at their ends."""
    names = {}
    for program in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        own = {}
        exec(compile(program.split("\nfor n in")[0], str(PAGE), "exec"), own)
        names.update({name: value for name, value in own.items() if callable(value) and value.__module__ is None})
    return names


def save(figure, folder, name, form="png"):
    path = folder / f"physics-{name}.{form}"
    if form == "svg":
        figure.savefig(path, metadata={"Date": None})
        lines = path.read_text(encoding="utf-8").splitlines()
        path.write_text("".join(line.rstrip() + "\n" for line in lines), encoding="utf-8")
    else:
        data = io.BytesIO()
        figure.savefig(data, dpi=130, bbox_inches="tight", pad_inches=0.06)
        Image.open(data).convert("RGB").quantize(96).save(path, optimize=True)
    plt.close(figure)


def pair(width=7.0, height=3.0):
    return plt.subplots(1, 2, figsize=(width, height), layout="constrained")


def image(figure, axis, values, size, label, levels, ticks, cmap="viridis", extend="neither"):
    """Draw values in cells, in bands of colour: few colours make small files."""
    c = (np.arange(len(values)) + 0.5) / len(values) * size
    c[0], c[-1] = 0, size  # to the edges
    shown = axis.contourf(c, c, values.T, levels, cmap=cmap, extend=extend)
    figure.colorbar(shown, ax=axis, label=label, fraction=0.046, pad=0.03, ticks=ticks)
    axis.set(aspect="equal", xlim=(0, size), ylim=(0, size))


def stokes(f, folder):
    n = 64
    figure, axes = pair()
    for axis, re, steps in zip(axes, (1, 100), (1, 8)):
        u, v, p, _ = f["cavity"](n, re, steps)
        u = np.vstack([np.zeros((1, n)), u, np.zeros((1, n))])
        v = np.hstack([np.zeros((n, 1)), v, np.zeros((n, 1))])
        u, v = (u[1:] + u[:-1]) / 2, (v[:, 1:] + v[:, :-1]) / 2
        c = (np.arange(n) + 0.5) / n
        top = 20 if steps == 1 else 0.3
        levels = np.linspace(-top, top, 21)
        image(figure, axis, p - p.mean(), 1, "pressure / (ρ U²)", levels, levels[::5], "RdBu_r", "both")
        axis.streamplot(c, c, u.T, v.T, color="0.15", density=0.9, linewidth=0.7, arrowsize=0.7)
        axis.set(xlabel="x", title="Stokes flow, Re = 1" if steps == 1 else f"Navier–Stokes, Re = {re}")
    axes[0].set(ylabel="y")
    save(figure, folder, "stokes")


def biot(f, folder):
    n = 64
    figure, axes = plt.subplots(1, 2, figsize=(7.2, 3.2), layout="constrained", sharey=True)
    grid = np.linspace(0, 10, n + 1)
    for axis, (days, steps) in zip(axes, ((1, 4), (100, 20))):
        u, p, _ = f["footing"](n, 2.5, steps=steps, days=days)
        x, y = grid[None, :] + 20 * u[..., 0], grid[:, None] + 20 * u[..., 1]
        shown = axis.contourf(x, y, 1000 * p, np.arange(0, 81, 4), cmap="viridis", extend="min")
        for at in np.linspace(0.15, 2.35, 5):
            tip = 10 + 20 * u[-1, int(at / 10 * n), 1]
            axis.annotate("", (at, tip), (at, 10.75), arrowprops={"arrowstyle": "->", "lw": 0.8})
        axis.plot([0, 10, 10], [10, 10, 0], color="0.6", lw=0.6, ls="--")
        title = "after 1 day" if days == 1 else f"after {days} days"
        axis.set(aspect="equal", xlabel="x / m", title=title, xlim=(0, 10.4), ylim=(0, 11))
    axes[0].set(ylabel="y / m")
    figure.colorbar(shown, ax=axes, label="pore pressure / kPa", fraction=0.03, pad=0.02, ticks=range(0, 81, 20))
    save(figure, folder, "biot")


def darcy(f, folder):
    n = 128
    flux, head, K, _ = f["aquifer"](n)
    figure, axes = pair()
    levels = np.arange(-1.5, 3.1, 0.25)
    image(figure, axes[0], np.log10(K), 1, "log₁₀ of K / (m²/d)", levels, range(-1, 4), "cividis")
    image(figure, axes[1], head, 1, "head / m", np.arange(0, 10.1, 0.5), range(0, 11, 2), "Blues")
    c = (np.arange(n) + 0.5) / n
    wx = (flux[1:] + flux[:-1]) / 2
    down = np.cumsum(-np.diff(flux, axis=0), axis=1)  # fluxes upwards, from the balance of each cell
    wy = (np.hstack([np.zeros((n, 1)), down[:, :-1]]) + down) / 2
    axes[1].streamplot(c, c, wx.T, wy.T, color="0.15", density=1.0, linewidth=0.6, arrowsize=0.6)
    for axis in axes:
        axis.set(xlabel="x / km")
    axes[0].set(ylabel="y / km")
    save(figure, folder, "darcy")


def rubber(f, folder):
    n = 32
    u, p, _, _ = f["mount"](n)
    figure, axis = plt.subplots(figsize=(7.0, 2.4), layout="constrained")
    x, y = np.meshgrid(np.linspace(0, 60, 3 * n + 1), np.linspace(0, 20, n + 1))
    x, y = x + 5 * u[..., 0], y + 5 * u[..., 1]
    shown = axis.contourf(x, y, p, np.arange(-0.05, 0.601, 0.025), cmap="viridis", extend="both")
    for k in range(0, 3 * n + 1, 8):
        axis.plot(x[:, k], y[:, k], color="w", lw=0.4)
    for k in range(0, n + 1, 8):
        axis.plot(x[k], y[k], color="w", lw=0.4)
    for low, high in ((-1.6, 0.0), (19.0, 20.6)):
        axis.fill_between([0, 60], low, high, color="0.55", lw=0)
    axis.set(aspect="equal", xlabel="x / mm", ylabel="y / mm", xlim=(0, 66), ylim=(-1.6, 20.6))
    figure.colorbar(shown, ax=axis, label="pressure / MPa", fraction=0.02, pad=0.02, ticks=np.arange(0, 7) / 10)
    save(figure, folder, "rubber")


def reservoir(f, folder):
    n = 64
    p, s, _, _ = f["flood"](n)
    figure, axes = pair()
    image(figure, axes[0], p, 400, "pressure / bar", np.arange(0, 171, 10), range(0, 161, 40), "viridis", "max")
    image(figure, axes[1], s, 400, "water saturation", np.arange(0.2, 1.01, 0.05), [0.2, 0.4, 0.6, 0.8, 1], "YlGnBu")
    for axis in axes:
        axis.set(xlabel="x / m")
    axes[0].set(ylabel="y / m")
    save(figure, folder, "reservoir")


def maxwell(f, folder):
    n = 32
    figure, axes = plt.subplots(1, 2, figsize=(7.2, 3.1), layout="constrained", sharey=True)
    for axis, sigma in zip(axes, (1.0, 3.5e7)):
        bx, bz, _ = f["coil"](n, sigma)
        middle = slice(n // 2 - 1, n // 2 + 1)
        bx, bz = bx[:, middle].mean(1), bz[:, middle].mean(1)  # at the nodes of x, or of z
        bx, bz = np.vstack([0 * bx[:1], bx, 0 * bx[:1]]), np.hstack([0 * bz[:, :1], bz, 0 * bz[:, :1]])
        bx, bz = (bx[1:] + bx[:-1]) / 2, (bz[:, 1:] + bz[:, :-1]) / 2
        size = 1e3 * np.hypot(bx, bz)
        c = ((np.arange(n) + 0.5) / n - 0.5) * 40
        c[0], c[-1] = -20, 20  # to the walls
        shown = axis.contourf(c, c, np.log10(size.T), np.arange(-3, 0.51, 0.25), cmap="YlOrRd", extend="both")
        c = ((np.arange(n) + 0.5) / n - 0.5) * 40
        axis.streamplot(c, c, bx.T, bz.T, color="0.25", density=1.1, linewidth=0.6, arrowsize=0.6)
        if sigma > 1:
            axis.fill_between([-20, 20], -7.5, -2.5, facecolor="none", edgecolor="C0", hatch="///", lw=0.8)
        axis.plot([-5, 5], [0, 0], "o", color="C1", ms=5, mec="k", mew=0.5)
        title = "with the plate" if sigma > 1 else "without the plate"
        axis.set(xlabel="x / cm", xlim=(-20, 20), ylim=(-20, 20), title=title, aspect="equal")
    axes[0].set(ylabel="z / cm")
    bar = figure.colorbar(shown, ax=axes, label="|B| / mT", fraction=0.03, pad=0.02, ticks=[-3, -2, -1, 0])
    bar.ax.set_yticklabels(["0.001", "0.01", "0.1", "1"])
    save(figure, folder, "maxwell")


def iterations(f, folder):
    cases = {
        "Navier–Stokes, Re = 100": ((16, 32, 64, 128), lambda n: 3 * n * n, lambda n: max(f["cavity"](n, 100, 3)[3])),
        "poroelasticity": ((16, 32, 64, 128), lambda n: 3 * (n + 1) ** 2, lambda n: max(f["footing"](n, 10)[2])),
        "Darcy flow": ((32, 64, 128, 256), lambda n: 3 * n * n, lambda n: f["aquifer"](n)[3]),
        "rubber, ν = 0.4999": ((8, 16, 32, 64), lambda n: 3 * (n + 1) * (3 * n + 1), lambda n: f["mount"](n)[3]),
        "two-phase flow": ((32, 64, 128), lambda n: 2 * n * n, lambda n: max(f["flood"](n)[3])),
        "eddy currents": ((16, 24, 32, 40), lambda n: 3 * n * (n - 1) ** 2, lambda n: f["coil"](n, 3.5e7)[2]),
    }
    figure, axis = plt.subplots(figsize=(6.2, 3.6), layout="constrained")
    for (name, (sizes, unknowns, count)), mark in zip(cases.items(), "os^vDP"):
        counts = [count(n) for n in sizes]
        print(name, [unknowns(n) for n in sizes], counts, flush=True)
        axis.semilogx([unknowns(n) for n in sizes], counts, marker=mark, ms=5, lw=1.3, label=name)
    axis.set(xlabel="unknowns", ylabel="iterations", ylim=(0, 50))
    axis.grid(alpha=0.3)
    axis.legend(ncols=2, fontsize=8, frameon=False, loc="upper left")
    save(figure, folder, "iterations", "svg")


def main():
    folder = pathlib.Path(sys.argv[1])
    f = functions()
    drawings = {d.__name__: d for d in (stokes, biot, darcy, rubber, reservoir, maxwell, iterations)}
    for name in sys.argv[2:] or drawings:
        drawings[name](f, folder)


if __name__ == "__main__":
    main()
