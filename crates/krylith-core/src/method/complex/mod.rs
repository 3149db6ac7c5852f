//! Methods with complex coefficients, for the real form of complex systems.
//!
//! The real form of a complex number x + iy is the pair (x, y) of neighbours in a vector. That of an entry
//! a + ib is the block [[a, −b], [b, a]]. A commutes with the product by i, which is the map J (x, y) = (−y,
//! x) of every pair ([`Space::turn`]). A method with real coefficients sees every eigenvalue of the complex
//! matrix together with its conjugate. It takes more iterations, or stagnates. With complex coefficients it
//! takes the iterations of complex arithmetic. Operators, ranks and devices still see real vectors.
//!
//! The inner product of complex vectors is (u, v) = uᵀv + i (J u)ᵀv in their real forms, because uᴴv has the
//! imaginary part Σ (Re u Im v − Im u Re v). A multiple is α v = Re α v + Im α J v.
//!
//! CG and MINRES need no such form: for a Hermitian matrix their coefficients are real.
//!
//! [`Space::turn`]: crate::space::Space::turn

pub mod bicgstab;
pub mod gmres;
