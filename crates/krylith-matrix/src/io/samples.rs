//! Sample files for the tests of this crate and of krylith, where ranks read the same files.

/// 5×5 with 11 entries, in the layout of the Harwell–Boeing guide:
///
/// [1 −3 0 −1 0; 0 0 −2 0 3; 2 0 0 0 0; 0 4 0 −4 0; 5 0 −5 0 6], with a right-hand side.
pub const UNSYMMETRIC: &str = concat!(
    "1Title of the example                                                   KEY     \n",
    "             6             1             1             3             1\n",
    "RUA                        5             5            11             0\n",
    "(6I3)           (13I3)          (5E15.8)            (5E15.8)            \n",
    "F                          1             0\n",
    "  1  4  6  8 10 12\n",
    "  1  3  5  1  4  2  5  1  4  2  5\n",
    " 1.00000000E+00 2.00000000E+00 5.00000000E+00-3.00000000E+00 4.00000000E+00\n",
    "-2.00000000E+00-5.00000000E+00-1.00000000E+00-4.00000000E+00 3.00000000E+00\n",
    " 6.00000000E+00\n",
    " 1.00000000E+00 2.00000000E+00 3.00000000E+00 4.00000000E+00 5.00000000E+00\n",
);

/// A file of NumPy's.
pub fn npy(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
    let mut out = b"\x93NUMPY".to_vec();
    out.extend([1, 0]);
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out.extend(data);
    out
}

/// Malformed files: the text, the line that is wrong, and a word of the error message.
pub fn malformed() -> Vec<(String, usize, &'static str)> {
    let real = "%%MatrixMarket matrix coordinate real general\n";
    let cases = [
        ("", 1, "first line"),
        ("1 2 3\n", 1, "first line"),
        ("%%MatrixMarket matrix coordinate real\n", 1, "first line"),
        ("%%MatrixMarket vector coordinate real general\n", 1, "vector"),
        ("%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1  \n", 3, "imaginary"),
        ("%%MatrixMarket matrix coordinate real hermitian\n1 1 1\n1 1 1\n", 1, "hermitian"),
        ("%%MatrixMarket matrix coordinate quaternion general\n", 1, "quaternion"),
        ("%%MatrixMarket matrix array pattern general\n", 1, "pattern"),
        ("%%MatrixMarket matrix coordinate real general\n% c\n", 3, "sizes"),
        ("%%MatrixMarket matrix coordinate real general\n% c\n2 2\n", 3, "sizes"),
        ("%%MatrixMarket matrix coordinate real general\n2 -2 1\n", 2, "sizes"),
        ("%%MatrixMarket matrix coordinate real general\n2 99999999999 1\n1 1 1\n", 2, "32-bit"),
        ("%%MatrixMarket matrix coordinate real symmetric\n2 3 1\n1 1 1\n", 2, "2×3"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 900\n1 1 1\n", 2, "cut short"),
        ("%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n2 1 1\n1 2 1\n", 4, "general"),
        ("%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 2 1.0\n", 3, "diagonal"),
        ("%%MatrixMarket matrix coordinate integer general\n2 2 1\n2 2 1.5\n", 3, "integer"),
        ("%%MatrixMarket matrix array real general\n2 1\n1.0\n2 2\n", 4, "unexpected text"),
        ("%%MatrixMarket matrix array real general\n2 1\n1.0000\n", 4, "1 of 2"),
        ("%%MatrixMarket matrix array real general\n1 1\n1\n% c\n2\n", 5, "more than"),
        ("%%MatrixMarket matrix array real general\n1 1\nnan\n", 3, "finite"),
    ];
    let bodies = [
        ("2 2 2\n1 1 1\n2 2 2\n\n% c\n1 2 3\n", 7, "more than the 2"),
        ("2 2 2\n1 1 1.0000\n", 4, "1 of 2"),
        ("2 2 1\n0 1 1\n", 3, "row index is 0"),
        ("2 2 1\n1 0 1\n", 3, "column index is 0"),
        ("2 2 1\n3 1 1\n", 3, "out of range"),
        ("2 2 1\n1 3 1\n", 3, "out of range"),
        ("2 2 1\n1 99999999999999999999999 1\n", 3, "out of range"),
        ("2 2 1\n1 -1 1\n", 3, "column index"),
        ("2 2 1\n1.0 1 1\n", 3, "row index"),
        ("2 2 1\n1 1 \n", 3, "missing"),
        ("2 2 1\n1 1 abc\n", 3, "not a number"),
        ("2 2 1\n1 1 1.0x\n", 3, "follows"),
        ("2 2 1\n1 1 1.0 2.0\n", 3, "unexpected text"),
        ("2 2 1\n1 1 1.0D\n", 3, "not a number"),
        ("2 2 1\n1 1 NaN\n", 3, "finite"),
        ("2 2 1\n1 1 -inf\n", 3, "finite"),
        ("2 2 1\n1 1 1e999\n", 3, "`1e999` is too large for double precision; every value must be finite"),
        (
            "2 2 1\n1 1 1,5\n",
            3,
            "the value `1,5` is not a number: use a decimal point instead of a comma in `1 1 1,5`",
        ),
        ("2 2 1\n1 1 1.0+\n", 3, "its exponent has no digits"),
        ("2 2 1\n1 1 *****\n", 3, "asterisks"),
    ];
    let bodies = bodies.map(|(body, line, word)| (real.to_string() + body, line, word));
    cases.map(|(t, l, w)| (t.to_string(), l, w)).into_iter().chain(bodies).collect()
}
