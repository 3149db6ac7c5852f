"""Flows on mesh files, on a device and on the CPU: steps of Stokes flow with a restart, and Newton's method.

    python3 flows_gpu.py FOLDER [--device cuda] [--mesh patient.tet.gz] [--cells 16] [--steps 100]

Makes a pipe of tetrahedra as a file of Gmsh with one inlet, one wall and three outlets, and takes a second mesh from
`--mesh`: text of nodes, tetrahedra and tagged triangles, where tag 1 is the wall, 2 the inlet and others are outlets.

- Steps: `krylith steps` on the pipe, all at once, and up to the middle and then resumed, on the device and on the CPU.
- Newton: `krylith newton artery:FILE` on the pipe with a resistance at each outlet, and on the second mesh.
"""
import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import time

import numpy as np


def pipe(cells):
    """Nodes, tetrahedra and tagged triangles of a pipe of length 4 and radius 1, cells in each direction of its section."""
    n, m = cells, 2 * cells
    s = np.linspace(-1, 1, n + 1)
    x, y = np.meshgrid(s, s, indexing="ij")
    # A square becomes a disc: its boundary is mapped to the circle.
    reach, radius = np.maximum(abs(x), abs(y)), np.hypot(x, y)
    scale = np.where(radius > 0, reach / np.where(radius > 0, radius, 1), 1)
    section = np.stack([x * scale, y * scale], axis=-1).reshape(-1, 2)
    nodes = np.concatenate([np.c_[section, np.full(len(section), 4 * k / m)] for k in range(m + 1)])
    number = lambda i, j, k: (k * (n + 1) + i) * (n + 1) + j
    tets, owner = [], {}
    for k in range(m):
        for i in range(n):
            for j in range(n):
                corner = lambda a: number(i + (a & 1), j + (a >> 1 & 1), k + (a >> 2))
                # Kuhn's six tetrahedra, which fit those of the neighbours.
                for one, two in ((1, 3), (3, 2), (2, 6), (6, 4), (4, 5), (5, 1)):
                    tets.append([corner(0), corner(one), corner(two), corner(7)])
    tets = np.array(tets)
    edges = nodes[tets[:, 1:]] - nodes[tets[:, :1]]
    flip = np.linalg.det(edges) < 0
    tets[flip] = tets[flip][:, [0, 2, 1, 3]]
    for t in tets:
        for leave in range(4):
            face = tuple(sorted(np.delete(t, leave)))
            owner[face] = owner.get(face, 0) + 1
    faces = []
    for face in (np.array(face) for face, count in owner.items() if count == 1):
        centre = nodes[face].mean(axis=0)
        if np.all(nodes[face, 2] == 0):
            tag = 2
        elif np.all(nodes[face, 2] == 4):
            tag = 3 + int((np.arctan2(centre[1], centre[0]) + np.pi) / (2 * np.pi + 1e-9) * 3)
        else:
            tag = 1
        faces.append([*face, tag])
    return nodes, tets, np.array(faces)


def read(path):
    with gzip.open(path, "rt") as file:
        n, m, k = (int(v) for v in file.readline().split())
        rows = lambda count, kind: np.array([file.readline().split() for _ in range(count)], dtype=kind)
        return rows(n, float), rows(m, int), rows(k, int)


def write(path, nodes, tets, faces):
    """A text file of Gmsh, version 2.2, with `wall`, `inlet` and `outlet1`, `outlet2` …"""
    names = {1: "wall", 2: "inlet"} | {t: f"outlet{t - 2}" for t in range(3, faces[:, 3].max() + 1)}
    with open(path, "w") as out:
        out.write("$MeshFormat\n2.2 0 8\n$EndMeshFormat\n$PhysicalNames\n")
        out.write(f"{len(names) + 1}\n" + "".join(f'2 {tag} "{name}"\n' for tag, name in names.items()) + '3 99 "fluid"\n')
        out.write(f"$EndPhysicalNames\n$Nodes\n{len(nodes)}\n")
        out.writelines(f"{k} {x!r} {y!r} {z!r}\n" for k, (x, y, z) in enumerate(nodes.tolist(), 1))
        out.write(f"$EndNodes\n$Elements\n{len(faces) + len(tets)}\n")
        out.writelines(f"{k} 2 2 {t} {t} {a + 1} {b + 1} {c + 1}\n" for k, (a, b, c, t) in enumerate(faces.tolist(), 1))
        first = len(faces) + 1
        out.writelines(f"{k} 4 2 99 99 {' '.join(str(i + 1) for i in t)}\n" for k, t in enumerate(tets.tolist(), first))
        out.write("$EndElements\n")


def command(folder, *words):
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "krylith", *words], capture_output=True, text=True, cwd=folder)
    print("$ krylith", *words, f"\n{done.stdout}{done.stderr}", f"rc {done.returncode}, {time.perf_counter() - begin:.2f} s", flush=True)
    return done.returncode


def plain(device):
    return re.sub(r"\W", "", device)


def difference(folder, one, other):
    one, other = (np.load(os.path.join(folder, name)) for name in (one, other))
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--mesh")
    parser.add_argument("--cells", type=int, default=16)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    folder, half = args.folder, args.steps // 2
    os.makedirs(folder, exist_ok=True)
    write(f"{folder}/pipe.msh", *pipe(args.cells))
    steps = ["steps", "stokes:pipe.msh,outlet=outlet*,scheme=radau-iia-2,tau=0.02", "--rtol", "1e-10"]
    for device in dict.fromkeys([args.device, "cpu"]):
        on, name = ["--device", device], plain(device)
        command(folder, *steps, *on, "--steps", str(args.steps), "--out", f"{name}.npy", "--picture", f"{name}.svg")
        command(folder, *steps, *on, "--steps", str(half), "--checkpoint", f"{name}.steps")
        resume = ["--resume", f"{name}.steps", "--out", f"{name}-resumed.npy"]
        command(folder, *steps, *on, "--steps", str(args.steps), *resume)
        print(json.dumps({"resumed against at once": difference(folder, f"{name}-resumed.npy", f"{name}.npy")}))
    print(json.dumps({"steps, device against cpu": difference(folder, f"{plain(args.device)}.npy", "cpu.npy")}))
    flow = "artery:pipe.msh,outlet=outlet1+outlet2+outlet3,resistance=800+1200+2000,re=100,steps=3"
    for device in dict.fromkeys([args.device, "cpu"]):
        name = plain(device)
        command(folder, "newton", flow, "--device", device, "--out", f"pipe-{name}.npy", "--report", f"pipe-{name}.json")
    print(json.dumps({"pipe, device against cpu": difference(folder, f"pipe-{plain(args.device)}.npy", "pipe-cpu.npy")}))
    if args.mesh:
        nodes, tets, faces = read(args.mesh)
        write(f"{folder}/patient.msh", nodes, tets, faces)
        ends = range(3, faces[:, 3].max() + 1)
        outlets = "+".join(f"outlet{t - 2}" for t in ends)
        for device in dict.fromkeys([args.device, "cpu"]):
            name = plain(device)
            words = [f"artery:patient.msh,outlet={outlets},resistance=1000,re=100,steps=3", "--device", device]
            command(folder, "newton", *words, "--vtu", f"patient-{name}.vtu", "--report", f"patient-{name}.json")


if __name__ == "__main__":
    main()
