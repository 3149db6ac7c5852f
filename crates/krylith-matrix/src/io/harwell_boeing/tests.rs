//! Tests with hand-written files in the fixed formats, and the errors for damaged ones.

use super::super::samples::UNSYMMETRIC;
use super::super::source::torture;
use super::*;

fn expected() -> Csr {
    let rows: [[f64; 5]; 5] = [
        [1.0, -3.0, 0.0, -1.0, 0.0],
        [0.0, 0.0, -2.0, 0.0, 3.0],
        [2.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 4.0, 0.0, -4.0, 0.0],
        [5.0, 0.0, -5.0, 0.0, 6.0],
    ];
    let mut entries = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        entries.extend(
            row.iter().enumerate().filter(|(_, v)| **v != 0.0).map(|(j, &v)| (i as u32, j as u32, v)),
        );
    }
    Csr::from_triplets(5, 5, &entries).unwrap()
}

/// A Rutherford–Boeing file, symmetric, with exponents spelt with D and numbers that touch.
pub const SYMMETRIC: &str = concat!(
    "A title in the free part                                                |1001   \r\n",
    "             5             1             1             2\r\n",
    "rsa                        3             3             4             0\r\n",
    "(40I2)          (40I2)          (1P,3D9.2)          \r\n",
    " 1 3 4 5\r\n",
    " 1 3 2 3\r\n",
    " 2.00D+00-1.25D-01 3.00D+02\r\n",
    " 4.00+002\r\n",
);

fn read(text: &str) -> Result<(Csr, Option<Vec<f64>>)> {
    parse(Path::new("a.rua"), text.as_bytes())
}

#[test]
fn a_real_matrix_with_its_right_hand_side() {
    let (a, rhs) = read(UNSYMMETRIC).unwrap();
    assert_eq!(a, expected());
    assert_eq!(rhs.unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0]);
    assert!(is_harwell_boeing(UNSYMMETRIC.as_bytes()) && is_harwell_boeing(SYMMETRIC.as_bytes()));
    for other in
        ["", "\n\n\n\n", "%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 1\n", "1\n2\n3\n(4\n"]
    {
        assert!(!is_harwell_boeing(other.as_bytes()), "{other:?}");
    }
    // Sparse right-hand sides are skipped.
    assert_eq!(read(&UNSYMMETRIC.replace("\nF  ", "\nM  ")).unwrap().1, None);
}

#[test]
fn symmetric_halves_are_expanded() {
    let (a, rhs) = read(SYMMETRIC).unwrap();
    let entries = [(0, 0, 2.0), (0, 2, -0.125), (1, 1, 300.0), (2, 0, -0.125), (2, 2, 400.0)];
    assert_eq!((a, rhs), (Csr::from_triplets(3, 3, &entries).unwrap(), None));
    // The upper triangle: columns 1, 2 and 3 hold rows 1; 2; and 1, 3.
    let upper = SYMMETRIC.replace(" 1 3 4 5\r", " 1 2 3 5\r").replace(" 1 3 2 3\r", " 1 2 1 3\r");
    let (a, _) = read(&upper).unwrap();
    let entries = [(0, 0, 2.0), (1, 1, -0.125), (0, 2, 300.0), (2, 0, 300.0), (2, 2, 400.0)];
    assert_eq!(a, Csr::from_triplets(3, 3, &entries).unwrap());
    let skew = "t\n 3 1 1 1\nrza 2 2 1 0\n(3I2) (3I2) (1F4.1)\n 1 2 2\n 2\n 7.5\n";
    let (a, _) = read(skew).unwrap();
    assert_eq!(a, Csr::from_triplets(2, 2, &[(0, 1, -7.5), (1, 0, 7.5)]).unwrap());
}

#[test]
fn patterns_are_ones_and_integers_are_numbers() {
    let pattern = "t\n 2 1 1 0\nPUA 2 3 3 0\n(4I2) (4I2)\n 1 2 2 4\n 2 2 1\n";
    let (a, _) = read(pattern).unwrap();
    assert_eq!(a, Csr::from_triplets(2, 3, &[(1, 0, 1.0), (1, 2, 1.0), (0, 2, 1.0)]).unwrap());
    let integer = "t\n 3 1 1 1\niua 1 2 2 0\n(4I2) (4I2) (2I3)\n 1 2 3\n 1 1\n -7 12\n";
    assert_eq!(read(integer).unwrap().0, Csr::from_triplets(1, 2, &[(0, 0, -7.0), (0, 1, 12.0)]).unwrap());
    // A position that occurs twice: its values are summed.
    let twice = "t\n 3 1 1 1\nrua 1 1 2 0\n(4I2) (4I2) (2F4.1)\n 1 3\n 1 1\n 1.5 2.5\n";
    assert_eq!(read(twice).unwrap().0.values(), [4.0]);
    let with_rhs = "t\n 3 1 1 0 1\nPSA 1 1 1 0\n(4I2) (4I2) (2F4.1)\nF 1 0\n 1 2\n 1\n 2.5\n";
    assert_eq!(read(with_rhs).unwrap().1.unwrap(), [2.5]);
}

/// diag(2, 3, 4) in the formats of other programs.
#[test]
fn formats_with_groups() {
    let file = |formats: [&str; 2], integers: &str, values: &str| {
        let [whole, reals] = formats;
        format!("t\n 3 1 1 1\nRUA 3 3 3 0\n{whole:<16}{whole:<16}{reals:<20}\n{integers}{values}")
    };
    let diagonal = Csr::from_triplets(3, 3, &[(0, 0, 2.0), (1, 1, 3.0), (2, 2, 4.0)]).unwrap();
    let integers = "        1        2        3        4\n        1        2        3\n";
    let values = "  2.0000000000000000E+00  3.0000000000000000E+00  4.0000000000000000E+00\n";
    for reals in
        ["(3(1P,E24.16))", "(3(E24.16))", "(1P,3(E24.16))", "(3(1X,E23.16))", "(3 E24.16)", "(BZ,3E24.16)"]
    {
        for whole in ["(8(I9))", "(2(4I9))", "(8I9)", "(8I9,/)", "(1X,I8,3(I9))"] {
            assert_eq!(read(&file([whole, reals], integers, values)).unwrap().0, diagonal, "{whole} {reals}");
        }
    }
    // An indented first line, a blank line after each line, and lines of two kinds.
    let integers = " 1 2\n 3 4\n 1 2\n 3\n";
    let read = |formats, integers| read(&file(formats, integers, "2.\n3.\n4.\n")).unwrap().0;
    assert_eq!(read(["(2I2)", "(F2.0)"], integers), diagonal);
    assert_eq!(read(["(1X,2(I2))", "(F2.0)"], "  1 2\n 3 4\n  1 2\n 3\n"), diagonal);
    assert_eq!(read(["(2I2,/)", "(F2.0)"], " 1 2\n\n 3 4\n\n 1 2\n\n 3\n"), diagonal);
    assert_eq!(read(["(I2/2I2)", "(F2.0)"], " 1\n 2 3\n 4\n 1\n 2 3\n"), diagonal);
}

#[test]
fn errors_name_line_and_reason() {
    let changed = |from: &str, to: &str| {
        assert!(UNSYMMETRIC.contains(from), "{from}");
        UNSYMMETRIC.replacen(from, to, 1)
    };
    for (text, line, word) in [
        (String::new(), 1, "cut short"),
        ("only a title\n".into(), 2, "line counts"),
        (changed("RUA", "CUA"), 3, "scipy.io.mmwrite"),
        (changed("RUA", "RHA"), 3, "hermitian"),
        (changed("RUA", "RUE"), 3, "unassembled"),
        (changed("RUA", "QUA"), 3, "another file"),
        (changed("RUA", "XUA"), 3, "not known"),
        (changed("RUA", "RXA"), 3, "not known"),
        (changed("RUA", "RUX"), 3, "not known"),
        (changed("RUA                        5", "RSA                        6"), 3, "6×5"),
        (changed("           11  ", " 99999999999  "), 3, "cut short"),
        (changed("    5             5  ", "    5    4294967296  "), 3, "32-bit"),
        (changed("    5             5  ", "    5             x  "), 3, "rows, columns and entries"),
        (changed("(6I3) ", "(6A3) "), 4, "`(6A3)`"),
        (changed("(5E15.8)            (5E15.8)", "                            "), 4, "values"),
        (changed("(5E15.8)            (5E15.8)", "(5E15.8)                    "), 4, "right-hand sides"),
        (changed("  1  4  6", "  1  9  6"), 6, "`6` is not a valid column pointer"),
        (changed("  1  4  6", "  2  4  6"), 6, "`2`"),
        (changed(" 10 12\n", " 10 11\n"), 6, "end at 10"),
        (changed(" 10 12\n", " 10 13\n"), 6, "`13`"),
        (changed(" 10 12\n", " 10\n"), 6, "`` is not a column pointer"),
        (changed("  1  3  5", "  1  0  5"), 7, "`0` is not a row index from 1 to 5"),
        (changed("  1  3  5", "  1  6  5"), 7, "`6`"),
        (changed("  1  3  5", "  1  x  5"), 7, "`x`"),
        (changed("-3.00000000E+00", "-3.0000O000E+00"), 8, "`-3.0000O000E+00` is not a number"),
        (changed("-3.00000000E+00", "            nan"), 8, "`nan` is NaN; every value must be finite"),
        (changed("-3.00000000E+00", "***************"), 8, "asterisks"),
        (changed("-3.00000000E+00", "-3.00000000E+  "), 8, "its exponent has no digits"),
        (changed(" 6.00000000E+00\n", "\n"), 10, "`` is not a number"),
        (UNSYMMETRIC[..UNSYMMETRIC.len() - 76].into(), 11, "5 numbers of the right-hand side"),
        (SYMMETRIC.replace(" 1 3 2 3\r", " 1 3 1 3\r"), 6, "other side"),
    ] {
        let message = read(&text).unwrap_err().to_string();
        assert!(message.starts_with(&format!("a.rua:{line}: ")), "{word}, {line}: {message}");
        assert!(message.contains(word), "{word}: {message}");
    }
    let skew = "t\n 3 1 1 1\nrza 2 2 1 0\n(3I2) (3I2) (1F4.1)\n 1 2 2\n 1\n 7.5\n";
    assert!(read(skew).unwrap_err().to_string().contains("skew"));
    let rows = "t\n 3 1 1 1\nrra 4000000000 1 1 0\n(3I2) (3I2) (1F4.1)\n 1 2\n 1\n 7.5\n";
    assert!(read(rows).unwrap_err().to_string().contains("4000000000 rows"));
}

#[test]
fn damaged_files_never_panic() {
    torture(UNSYMMETRIC.as_bytes(), parse);
    torture(SYMMETRIC.as_bytes(), parse);
}
