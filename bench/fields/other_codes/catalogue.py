"""The systems: which module makes each, and which of PETSc's methods stand beside Krylith on it."""

from dataclasses import dataclass

GMRES = "-ksp_type gmres -ksp_gmres_restart 100 -ksp_pc_side right -ksp_norm_type unpreconditioned "
CG = "-ksp_type cg -ksp_norm_type unpreconditioned "
MUMPS = "-pc_factor_mat_solver_type mumps -mat_mumps_icntl_14 200 "
RCM = "-pc_factor_mat_ordering_type rcm "
BLOCKS = "-ksp_type fgmres -ksp_gmres_restart 100 -pc_type fieldsplit "
BLOCKS += "-fieldsplit_u_ksp_type preonly -fieldsplit_p_ksp_type preonly "
SCHUR = BLOCKS + "-pc_fieldsplit_type schur -pc_fieldsplit_schur_fact_type "
SELFP = SCHUR + "full -pc_fieldsplit_schur_precondition selfp -fieldsplit_p_pc_type hypre "
LSC = SCHUR + "upper -pc_fieldsplit_schur_precondition self -fieldsplit_p_pc_type lsc "
LSC += "-fieldsplit_p_lsc_pc_type hypre "
#: Name: PETSc's options. The prefixes u and p are the fields of a system.
PETSC = {
    "mumps": GMRES + "-pc_type lu " + MUMPS,
    "mumps null pivots": GMRES + "-pc_type lu -mat_mumps_icntl_24 1 " + MUMPS,
    "mumps cholesky": GMRES + "-pc_type cholesky " + MUMPS,
    "ilu(0)": GMRES + "-pc_type ilu",
    "ilu(0) rcm": GMRES + "-pc_type ilu " + RCM,
    "ilu(1)": GMRES + "-pc_type ilu -pc_factor_levels 1",
    "ilu(1) rcm": GMRES + "-pc_type ilu -pc_factor_levels 1 " + RCM,
    "bicgstab ilu(0)": "-ksp_type bcgs -ksp_pc_side right -ksp_norm_type unpreconditioned -pc_type ilu",
    "icc": CG + "-pc_type icc",
    "gamg": CG + "-pc_type gamg",
    "hypre": CG + "-pc_type hypre",
    "gmres hypre": GMRES + "-pc_type hypre",
    "schur gamg mass": SCHUR + "upper -fieldsplit_u_pc_type gamg -fieldsplit_p_pc_type jacobi",
    "schur hypre mass": SCHUR + "upper -fieldsplit_u_pc_type hypre -fieldsplit_p_pc_type jacobi",
    "schur gamg hypre": SCHUR + "upper -fieldsplit_u_pc_type gamg -fieldsplit_p_pc_type hypre",
    "selfp ilu hypre": SELFP + "-fieldsplit_u_pc_type ilu",
    "selfp jacobi hypre": SELFP + "-fieldsplit_u_pc_type jacobi",
    "lsc hypre": LSC + "-fieldsplit_u_pc_type hypre",
    "lsc ilu": LSC + "-fieldsplit_u_pc_type ilu",
    "gauss-seidel hypre": BLOCKS + "-fieldsplit_u_pc_type hypre -fieldsplit_p_pc_type hypre",
}


@dataclass(frozen=True)
class Case:
    """`peers` names entries of PETSC, with the block size after a colon where it is not 1.

    The first peer is the direct method whose x the others are compared with. `schur` names the matrix for the
    peers that begin with "schur".
    """

    module: str
    peers: tuple
    schur: str = ""


def case(module, *peers, schur=""):
    return Case(module, ("mumps", *peers), schur)


#: Systems with wells or penalties of 1e30 have only MUMPS: the plain residual ends iterations early.
CASES = {
    "stokes_cr3d": case("flows", "schur gamg mass", "schur hypre mass", schur="Mp"),
    "stokes_p2p0_mean": case("flows"),
    "stokes_pspg3d": case("flows", "ilu(0)", "ilu(0):4", "ilu(1):4"),
    "stokes_slip_mult": case("flows", "lsc hypre"),
    "stokes3d_encl_1e4": Case("flows", ("mumps null pivots", "schur gamg mass", "schur hypre mass"), "Mp"),
    "brinkman_1e8": case("flows"),
    "oseen3d_dt": case("flows", "ilu(1)", "lsc ilu", "lsc hypre"),
    "boussinesq": case("flows", "ilu(1)"),
    "fv_pu_coupled": case("flows", "ilu(1):4", "ilu(0):4", "ilu(0)"),
    "plate_hhj": case("solids"),
    "elas_tdnns": case("solids"),
    "thermo_elastic_si": case("solids", "ilu(0)", "gauss-seidel hypre"),
    "biot3d_k1e-12": case("solids", "schur gamg hypre", schur="Sp"),
    "contact_mult": case("solids", "mumps cholesky"),
    "frame_beams": case("solids", "mumps cholesky", "icc", "gamg:6"),
    "darcy_rt1_aniso": case("porous", "selfp ilu hypre", "selfp jacobi hypre"),
    "darcy_hybrid3d": case("porous", "icc", "hypre", "gamg"),
    "fim_wells": case("porous"),
    "maxwell_order2": case("electromagnetics", "mumps cholesky", "icc"),
    "eddy_2x2": case("electromagnetics", "ilu(0)", "ilu(1)"),
    "helmholtz_pml": case("electromagnetics", "ilu(1)"),
    "dg_advect_p2": case("transport", "ilu(0) rcm", "ilu(0)", "ilu(1)"),
    "irk2_p2": case("transport", "ilu(0)", "gmres hypre"),
    "spacetime_heat": case("transport", "ilu(0)", "gmres hypre"),
    "rad_diff_10g": case("transport", "ilu(1)", "ilu(0)", "ilu(0):11"),
    "sg_dd_si": case("transport", "ilu(1):3", "ilu(0):3", "ilu(0)"),
    "circuit_mna": case("circuits", "ilu(0)", "ilu(1)"),
    "powerflow": case("circuits", "ilu(0)", "ilu(1)"),
    "markov_tandem": Case("circuits", ("mumps null pivots", "bicgstab ilu(0)", "ilu(0)", "ilu(1)")),
    "control_kkt_1e-8": case("circuits"),
    "stokes_tgv": case("penalties"),
    "biot_tgv": case("penalties"),
    "poisson_tgv": case("penalties"),
    "diff3d_tgv": case("penalties"),
    "h1_p6_aniso": case("penalties", "mumps cholesky", "hypre", "gamg", "icc"),
    "supg3d_rot_pen": case("penalties", "ilu(0)", "ilu(1)"),
    "stokes_control": case("unusual"),
    "hyper_free": Case("unusual", ("mumps null pivots",)),
    "vibro": case("unusual"),
    "ions": case("unusual", "ilu(0):4", "ilu(1):4"),
}
