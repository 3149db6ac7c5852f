//! `krylith steps`: problems and files, outputs, restarts and errors.

use crate::common::{Folder, array};
use krylith_problems::DuctMesh;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A duct as a text file of Gmsh, with its surfaces.
fn gmsh(nodes: [usize; 3]) -> String {
    let mesh = DuctMesh::new(nodes, [2.0, 1.0, 1.0]).unwrap();
    let tetrahedra = mesh.tetrahedra();
    let mut faces = BTreeMap::new();
    for &[a, b, c, d] in &tetrahedra {
        for mut face in [[a, b, c], [a, b, d], [a, c, d], [b, c, d]] {
            face.sort_unstable();
            *faces.entry(face).or_insert(0) += 1;
        }
    }
    faces.retain(|_, count| *count == 1);
    let mut out = String::from(
        "$MeshFormat\n2.2 0 8\n$EndMeshFormat\n$PhysicalNames\n3\n2 1 \"inlet\"\n2 2 \"wall\"\n2 3 \"outlet\"\n",
    );
    let _ = writeln!(out, "$EndPhysicalNames\n$Nodes\n{}", mesh.nodes());
    for (i, [x, y, z]) in mesh.coordinates().into_iter().enumerate() {
        let _ = writeln!(out, "{} {x} {y} {z}", i + 1);
    }
    let _ = writeln!(out, "$EndNodes\n$Elements\n{}", faces.len() + tetrahedra.len());
    for (k, face) in faces.keys().enumerate() {
        let at = |x: usize| face.iter().all(|&i| mesh.position(i as usize)[0] == x);
        let group = if at(0) {
            1
        } else if at(nodes[0] - 1) {
            3
        } else {
            2
        };
        let [a, b, c] = face.map(|i| i + 1);
        let _ = writeln!(out, "{} 2 2 {group} {group} {a} {b} {c}", k + 1);
    }
    for (k, t) in tetrahedra.iter().enumerate() {
        let [a, b, c, d] = t.map(|i| i + 1);
        let _ = writeln!(out, "{} 4 2 9 9 {a} {b} {c} {d}", faces.len() + k + 1);
    }
    out + "$EndElements\n"
}

/// A hundred steps on a mesh from a file, in two numberings: with a restart in the middle they are the same.
#[test]
fn a_restart_changes_nothing() {
    let f = Folder::new();
    // With this size, `auto` changes the preconditioner after some steps.
    f.write("duct.msh", gmsh([9, 7, 7]));
    for numbering in ["file", "random:3"] {
        let text = format!("steps stokes:duct.msh,tau=0.02,numbering={numbering} --device cpu --threads 1");
        let ran = f.line(&format!("{text} --steps 100 --out whole.npy --picture speed.svg --vtu flow.vtu"));
        let out = &ran.works().out;
        for words in ["step 100, t = 2", "100 here", "set up once", "whole.npy (u)", "numbering="] {
            assert!(out.contains(words), "`{words}` is not in {out}");
        }
        f.line(&format!("{text} --steps 50 --checkpoint half.steps --quiet")).works();
        f.line(&format!("{text} --steps 100 --resume half.steps --out again.npy")).works();
        let (whole, again) = (array(f.path("whole.npy")), array(f.path("again.npy")));
        assert_eq!(whole.shape(), [4 * 9 * 7 * 7]);
        let largest = whole.values().iter().fold(0.0f64, |most, v| most.max(v.abs()));
        for (a, b) in whole.values().iter().zip(again.values()) {
            assert!((a - b).abs() <= 1e-13 * largest, "{numbering}: {a} and {b}");
        }
        // At t = 2 = 2 ramp the inflow is zero again, and it was not before.
        assert!(largest > 1e-3);
        let picture = std::fs::read_to_string(f.path("speed.svg")).unwrap();
        assert!(picture.contains("Speed at t = 2") && !picture.contains("NaN"), "{numbering}");
        let vtu = String::from_utf8_lossy(&std::fs::read(f.path("flow.vtu")).unwrap()).into_owned();
        assert!(vtu.contains("NumberOfPoints=\"441\" NumberOfCells=\"1728\"") && vtu.contains("velocity"));
    }
}

/// The steps of a duct by the command are those of the library, and files come after every n-th.
#[test]
fn outputs_come_after_every_nth_step() {
    let f = Folder::new();
    let ran = f.line(
        "steps stokes:4x4x4,tau=0.25,scheme=radau-iia-5 --steps 4 --every 2 --rtol 1e-10 --out u.txt \
         --checkpoint c.steps --vtu u.vtu --device cpu",
    );
    ran.works();
    assert!(ran.err.contains("step 2, t = 0.5: "), "{ran:#?}");
    for name in ["u-2.txt", "u-4.txt", "u-2.vtu", "u-4.vtu", "c.steps"] {
        assert!(f.path(name).exists(), "{name}");
    }
    assert!(!f.path("u.txt").exists() && !f.path("u-3.txt").exists());
    // At t = ramp = 1 the inflow peaks: 16 y (1 − y) z (1 − z), here at y = z = 1/3.
    let u = array(f.path("u-4.txt"));
    let peak = 16.0 * (2.0f64 / 9.0).powi(2);
    assert!((u.values()[4 * 20] - peak).abs() < 1e-8, "{} for {peak}", u.values()[4 * 20]);
    // All steps are done: a restart only writes.
    let ran = f.line("steps stokes:4x4x4,tau=0.25,scheme=radau-iia-5 --steps 4 --resume c.steps --out v.npy");
    assert!(ran.works().out.contains("0 here"), "{ran:#?}");
    assert_eq!(array(f.path("v.npy")).values(), u.values());
    // Another scheme goes on from the same state.
    f.line("steps stokes:4x4x4,tau=0.5,scheme=gauss-1 --steps 5 --resume c.steps --device cpu").works();
}

/// u′ + L u = f with L = diag(1, 2, …): u = f/λ (1 − exp(−λt)).
#[test]
fn matrices_from_files_step_in_time() {
    let f = Folder::new();
    let n = 7;
    let diagonal = |value: fn(usize) -> f64| {
        let head = format!("%%MatrixMarket matrix coordinate real general\n{n} {n} {n}\n");
        (1..=n).fold(head, |all, i| all + &format!("{i} {i} {}\n", value(i)))
    };
    f.write("M.mtx", diagonal(|_| 1.0));
    f.write("L.mtx", diagonal(|i| i as f64));
    f.write("f.mtx", format!("%%MatrixMarket matrix array real general\n{n} 1\n{}", "3\n".repeat(n)));
    f.write("u0.txt", "1\n".repeat(n));
    let line = "steps M.mtx L.mtx --tau 0.125 --scheme radau-iia-4 --steps 8 --rtol 1e-13 --device cpu";
    f.line(&format!("{line} --rhs f.mtx --u0 u0.txt --out u.mtx --block 1")).works();
    let u = array(f.path("u.mtx"));
    for (i, u) in u.values().iter().enumerate() {
        let rate = (i + 1) as f64;
        let exact = 3.0 / rate + (1.0 - 3.0 / rate) * (-rate).exp();
        assert!((u - exact).abs() < 1e-7, "{i}: {u} for {exact}");
    }
    f.write("wide.mtx", "%%MatrixMarket matrix coordinate real general\n2 3 1\n1 1 1\n");
    f.line("steps M.mtx --steps 2 --tau 1").fails(2, &["a file holds only M; give the file of L after it"]);
    f.line("steps M.mtx L.mtx --steps 2").fails(2, &["--tau is missing: files need a positive step length"]);
    f.line("steps M.mtx L.mtx --steps 2 --tau -1").fails(2, &["--tau -1: files need a positive"]);
    f.line("steps M.mtx wide.mtx --steps 2 --tau 1").fails(2, &["M.mtx is 7×7 and wide.mtx is 2×3"]);
    f.line("steps M.mtx L.mtx --steps 2 --tau 1 --scheme gauss-9").fails(2, &["`gauss-9` has 9 stages"]);
    f.line("steps M.mtx L.mtx --steps 2 --tau 1 --vtu a.vtu").fails(2, &["--vtu a.vtu: files have no mesh"]);
    f.line("steps M.mtx L.mtx --steps 2 --tau 1 --out M.mtx")
        .fails(2, &["--out M.mtx would replace the input"]);
    f.line("steps M.mtx none.mtx --steps 2 --tau 1").fails(2, &["none.mtx"]);
}

#[test]
fn what_is_wrong_is_named() {
    let f = Folder::new();
    f.line("steps stokes:3x3x3 --steps 1 --checkpoint c.steps --device cpu").works();
    f.write("cut.steps", &std::fs::read(f.path("c.steps")).unwrap()[..99]);
    f.write("no.steps", "hello\n\n");
    for (line, words) in [
        ("steps stokes:3x3x3", "--steps"),
        ("steps laplace:3x3x3 --steps 1", "problem `laplace` has no steps in time; stokes has"),
        ("steps stokes:3x3x3 --steps 1 --tau 1", "--tau is for files; a problem has keys"),
        ("steps stokes:3x3x3 --steps 1 --resume cut.steps", "--resume cut.steps: it"),
        ("steps stokes:3x3x3 --steps 1 --resume no.steps", "it is no checkpoint of this version"),
        ("steps stokes:3x3x3 --steps 1 --resume none", "--resume none: it cannot be read"),
        ("steps stokes:3x3x4 --steps 2 --resume c.steps", "its state has 108 numbers, and M has 144 rows"),
        ("steps stokes:3x3x3,nu=1 --steps 2 --resume c.steps", "it is a checkpoint of `stokes:3x3x3,nu=0.01"),
        ("steps stokes:3x3x3 --steps 1 --out -", "--out -: steps write files"),
        ("steps stokes:3x3x3 --steps 1 --out u.foo", "u is written as .npy"),
    ] {
        f.line(line).fails(2, &[words]);
    }
    f.line("steps stokes:6x6x6 --steps 3 --max-iters 2 --precond none --method gmres --device cpu --checkpoint d.steps")
        .fails(1, &["step 1 of stokes:6x6x6", "max-iters"]);
    assert!(!f.path("d.steps").exists());
}
