#!/usr/bin/env python3
"""Prints ||b - A x|| / ||b|| by SciPy: `residual.py A.npz b.npy x.npy`."""

import sys

import numpy as np
import scipy.sparse


def main():
    a, b, x = scipy.sparse.load_npz(sys.argv[1]), np.load(sys.argv[2]), np.load(sys.argv[3])
    print(repr(float(np.linalg.norm(b - a @ x.reshape(b.shape)) / np.linalg.norm(b))))


main()
