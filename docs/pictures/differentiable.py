"""Draws `inverse.png` from the program in docs/differentiable.md: `python3 differentiable.py FOLDER`.

It needs Krylith, JAX, SciPy, Matplotlib and Pillow.
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

PAGE = pathlib.Path(__file__).resolve().parent.parent / "differentiable.md"
plt.rcParams.update({"font.size": 9, "axes.titlesize": 9.5})


def main() -> None:
    program = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[0]
    names: dict = {}
    exec(compile(program, str(PAGE), "exec"), names)
    n = names["n"]
    figure, axes = plt.subplots(1, 4, figsize=(11.4, 2.8), layout="constrained")
    levels = np.linspace(-1.5, 1.5, 16)
    for axis, m, title in ((axes[0], names["true"], "true ln k"), (axes[2], names["found"], "recovered ln k")):
        shown = axis.imshow(m.reshape(n, n).T, origin="lower", extent=(0, 1, 0, 1), vmin=-1.5, vmax=1.5, cmap="RdBu_r")
        axis.set(title=title, xlabel="x")
        figure.colorbar(shown, ax=axis, fraction=0.046, pad=0.03, ticks=levels[::5])
    u = np.asarray(names["data"])[:, 0].reshape(n, n).T
    shown = axes[1].imshow(u, origin="lower", extent=(0, 1, 0, 1), cmap="viridis")
    axes[1].set(title="data: u of the first of four sources", xlabel="x")
    figure.colorbar(shown, ax=axes[1], fraction=0.046, pad=0.03)
    axes[0].set(ylabel="y")
    axes[3].semilogy(np.arange(1, len(names["misfits"]) + 1), names["misfits"], color="C0")
    axes[3].axhline(1.0, color="0.4", linestyle="--", linewidth=0.9)
    axes[3].text(len(names["misfits"]), 1.05, "noise", ha="right", va="bottom", color="0.3")
    axes[3].set(title="misfit / noise", xlabel="evaluations", ylim=(0.5, None))
    axes[3].grid(alpha=0.3, which="both")
    data = io.BytesIO()
    figure.savefig(data, dpi=120, bbox_inches="tight", pad_inches=0.06)
    Image.open(data).convert("RGB").quantize(255).save(pathlib.Path(sys.argv[1]) / "inverse.png", optimize=True)


if __name__ == "__main__":
    main()
