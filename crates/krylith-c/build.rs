//! Sets the name (soname) by which programs find the library at run time; incompatible versions have
//! different names.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let [major, minor] = ["MAJOR", "MINOR"].map(|part| std::env::var(format!("CARGO_PKG_VERSION_{part}")));
    let (major, minor) = (major.unwrap_or_default(), minor.unwrap_or_default());
    // Before 1.0 each minor version may change the interface.
    let compatible = if major == "0" { format!("{major}.{minor}") } else { major };
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libkrylith.so.{compatible}");
    }
}
