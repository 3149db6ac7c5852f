//! Runs the example `multiphase` on few cells: velocities are divergence-free, volumes of phases are kept,
//! pictures are valid.

#[path = "../../examples/multiphase.rs"]
mod example;

use krylith_core::Options;

#[test]
fn steps_keep_phases_and_leave_no_divergence() {
    let folder = std::env::temp_dir().join(format!("krylith-multiphase-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let options: Options = "device=cpu threads=1 rtol=1e-10".parse().unwrap();
    let reports = example::run([12, 6, 12], 4, &folder, &options);
    let pictures: Vec<_> = (0..4)
        .map(|step| std::fs::read_to_string(folder.join(format!("multiphase_{step:03}.svg"))))
        .collect();
    // A file that remains in a temporary folder is harmless.
    let _ = std::fs::remove_dir_all(&folder);
    let reports = reports.unwrap();
    assert_eq!(reports.len(), 4);
    for (step, (report, picture)) in reports.iter().zip(pictures).enumerate() {
        assert!(report.dt > 0.0 && report.iterations > 0, "step {step}: {report:?}");
        assert!(report.divergence < 1e-8, "step {step}: {report:?}");
        // In so few steps only gas leaves through the top.
        for (now, first) in report.volume.iter().zip(reports[0].volume) {
            assert!(*now > 1.0 && (now - first).abs() < 1e-3 * first, "step {step}: {report:?}");
        }
        let picture = picture.unwrap();
        assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"), "step {step}");
        assert!(picture.matches("<rect").count() > 20, "step {step}");
    }
}
