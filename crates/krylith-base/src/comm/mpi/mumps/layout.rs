//! The C structure of MUMPS, `DMUMPS_STRUC_C` with 32-bit integers, as each supported version lays it out.
//!
//! A list has the members in the order of the version's header. Their positions follow from the rules of C.
//! To support another version, add its number to a list, or a list for it.

use Kind::{Int, Long, Pointer, Real, Text};

/// The type of a member.
#[derive(Clone, Copy)]
enum Kind {
    Int,
    Long,
    Real,
    Pointer,
    Text,
}

/// Name, type and length of a member. A run of members that are not used has one line.
type Member = (&'static str, Kind, usize);

/// The members up to the scaling of rows and columns, which all versions share.
const FIRST: [Member; 21] = [
    ("sym", Int, 1),
    ("par", Int, 1),
    ("job", Int, 1),
    ("comm_fortran", Int, 1),
    ("icntl", Int, 60),
    ("keep", Int, 500),
    ("cntl", Real, 15),
    ("dkeep", Real, 230),
    ("keep8", Long, 150),
    ("n", Int, 1),
    ("nblk, nz_alloc, nz", Int, 3),
    ("nnz", Long, 1),
    ("irn, jcn, a", Pointer, 3),
    ("nz_loc", Int, 1),
    ("nnz_loc", Long, 1),
    ("irn_loc", Pointer, 1),
    ("jcn_loc", Pointer, 1),
    ("a_loc", Pointer, 1),
    ("nelt", Int, 1),
    ("eltptr to rowsca", Pointer, 10), // with a_elt, blkptr, blkvar, perm_in, sym_perm, uns_perm, colsca
    ("colsca_from_mumps, rowsca_from_mumps", Int, 2),
];

/// The other members in MUMPS 5.5 and 5.6, as far as they are used.
const LAST_5_5: [Member; 18] = [
    ("rhs, redrhs, rhs_sparse", Pointer, 3),
    ("sol_loc", Pointer, 1),
    ("rhs_loc", Pointer, 1),
    ("irhs_sparse, irhs_ptr", Pointer, 2),
    ("isol_loc", Pointer, 1),
    ("irhs_loc", Pointer, 1),
    ("nrhs", Int, 1),
    ("lrhs, lredrhs, nz_rhs", Int, 3),
    ("lsol_loc", Int, 1),
    ("nloc_rhs", Int, 1),
    ("lrhs_loc", Int, 1),
    ("schur_mloc to npcol", Int, 7),
    ("info", Int, 80),
    ("infog", Int, 80),
    ("rinfo", Real, 40),
    ("rinfog", Real, 40),
    ("deficiency", Int, 1),
    ("pivnul_list", Pointer, 1),
];

/// The members after `pivnul_list` in MUMPS 5.5 and 5.6.
const END_5_5: [Member; 6] = [
    ("mapping", Pointer, 1),
    ("size_schur", Int, 1),
    ("listvar_schur, schur", Pointer, 2),
    ("instance_number", Int, 1),
    ("wk_user", Pointer, 1),
    ("version_number", Text, 32),
];

/// The other members in MUMPS 5.7 and 5.8, as far as they are used.
const LAST_5_7: [Member; 21] = [
    ("colsca_loc, rowsca_loc, rowind, colind, pivots", Pointer, 5),
    ("rhs, redrhs, rhs_sparse", Pointer, 3),
    ("sol_loc", Pointer, 1),
    ("rhs_loc", Pointer, 1),
    ("rhsintr, irhs_sparse, irhs_ptr", Pointer, 3),
    ("isol_loc", Pointer, 1),
    ("irhs_loc", Pointer, 1),
    ("glob2loc_rhs, glob2loc_sol", Pointer, 2),
    ("nrhs", Int, 1),
    ("lrhs, lredrhs, nz_rhs", Int, 3),
    ("lsol_loc", Int, 1),
    ("nloc_rhs", Int, 1),
    ("lrhs_loc", Int, 1),
    ("nsol_loc", Int, 1),
    ("schur_mloc to ld_rhsintr", Int, 8),
    ("info", Int, 80),
    ("infog", Int, 80),
    ("rinfo", Real, 40),
    ("rinfog", Real, 40),
    ("deficiency", Int, 1),
    ("pivnul_list", Pointer, 1),
];

/// The members after `pivnul_list` in MUMPS 5.7 and 5.8.
const END_5_7: [Member; 5] = [
    ("mapping, singular_values", Pointer, 2),
    ("size_schur", Int, 1),
    ("listvar_schur, schur", Pointer, 2),
    ("wk_user", Pointer, 1),
    ("version_number", Text, 32),
];

/// Length of the text of a version.
pub const VERSION_TEXT: usize = 32;
/// Bytes to allocate for a structure of any version. The largest supported one has 10,920.
pub const BYTES: usize = 1 << 16;

/// Positions of the members in use, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the names of MUMPS
pub struct Layout {
    pub icntl: usize,
    pub cntl: usize,
    pub n: usize,
    pub nnz_loc: usize,
    pub irn_loc: usize,
    pub jcn_loc: usize,
    pub a_loc: usize,
    pub sol_loc: usize,
    pub rhs_loc: usize,
    pub isol_loc: usize,
    pub irhs_loc: usize,
    pub nrhs: usize,
    pub lsol_loc: usize,
    pub nloc_rhs: usize,
    pub lrhs_loc: usize,
    pub info: usize,
    pub infog: usize,
    pub rinfog: usize,
    pub pivnul_list: usize,
    pub version_number: usize,
}

/// Positions that no version changes, so that an instance can be created before its version is known.
pub const SYM: usize = 0;
pub const PAR: usize = 4;
pub const JOB: usize = 8;
pub const COMM: usize = 12;

/// The supported versions, and their layouts.
pub fn known() -> [(&'static [&'static str], Layout); 2] {
    [
        (&["5.5", "5.6"], Layout::of(&[&FIRST, &LAST_5_5, &END_5_5])),
        (&["5.7", "5.8"], Layout::of(&[&FIRST, &LAST_5_7, &END_5_7])),
    ]
}

impl Layout {
    /// Places the members as a C compiler does.
    fn of(members: &[&[Member]]) -> Self {
        let mut at = 0usize;
        let mut places = Vec::new();
        for (name, kind, length) in members.iter().copied().flatten() {
            let size = match kind {
                Int => size_of::<i32>(),
                Long | Real => 8,
                Pointer => size_of::<usize>(),
                Text => 1,
            };
            at = at.next_multiple_of(size);
            places.push((*name, at));
            at += size * length;
        }
        // A name that no list has would stand behind the structure; a test finds that.
        let place = |name: &str| places.iter().find(|(own, _)| *own == name).map_or(BYTES - 512, |p| p.1);
        Self {
            icntl: place("icntl"),
            cntl: place("cntl"),
            n: place("n"),
            nnz_loc: place("nnz_loc"),
            irn_loc: place("irn_loc"),
            jcn_loc: place("jcn_loc"),
            a_loc: place("a_loc"),
            sol_loc: place("sol_loc"),
            rhs_loc: place("rhs_loc"),
            isol_loc: place("isol_loc"),
            irhs_loc: place("irhs_loc"),
            nrhs: place("nrhs"),
            lsol_loc: place("lsol_loc"),
            nloc_rhs: place("nloc_rhs"),
            lrhs_loc: place("lrhs_loc"),
            info: place("info"),
            infog: place("infog"),
            rinfog: place("rinfog"),
            pivnul_list: place("pivnul_list"),
            version_number: place("version_number"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared with `offsetof` of a C compiler for the headers of 5.5.1 and 5.7.3.
    #[test]
    fn members_stand_where_a_compiler_places_them() {
        let [(_, old), (_, new)] = known();
        let expected = Layout {
            icntl: 16,
            cntl: 2256,
            n: 5416,
            nnz_loc: 5472,
            irn_loc: 5480,
            jcn_loc: 5488,
            a_loc: 5496,
            sol_loc: 5624,
            rhs_loc: 5632,
            isol_loc: 5656,
            irhs_loc: 5664,
            nrhs: 5672,
            lsol_loc: 5688,
            nloc_rhs: 5692,
            lrhs_loc: 5696,
            info: 5728,
            infog: 6048,
            rinfog: 6688,
            pivnul_list: 7016,
            version_number: 7072,
        };
        assert_eq!(old, expected);
        let expected = Layout {
            sol_loc: 5664,
            rhs_loc: 5672,
            isol_loc: 5704,
            irhs_loc: 5712,
            nrhs: 5736,
            lsol_loc: 5752,
            nloc_rhs: 5756,
            lrhs_loc: 5760,
            info: 5800,
            infog: 6120,
            rinfog: 6760,
            pivnul_list: 7088,
            version_number: 7144,
            ..expected
        };
        assert_eq!(new, expected);
    }
}
