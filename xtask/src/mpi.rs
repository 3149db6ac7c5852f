//! What a build with MPI needs: looked for, and in CI installed.

use crate::debian;
use crate::shell::{read, works};
use std::path::{Path, PathBuf};
use std::process::Command;

/// An MPI library with headers, its launcher, and libclang, which reads the headers.
const PACKAGES: [&str; 4] = ["libopenmpi-dev", "openmpi-bin", "libclang-dev", "clang"];

/// Makes sure that all is there; the error says what is missing.
pub fn install() -> Result<(), String> {
    debian::install(&PACKAGES, missing)
}

/// The first thing that is not here.
fn missing() -> Option<&'static str> {
    let has = |program| works(Command::new(program).arg("--version"));
    if !has("mpicc") {
        return Some("mpicc");
    }
    if !has("mpirun") {
        return Some("mpirun");
    }
    if libclang().is_none() { Some("libclang") } else { None }
}

/// libclang as bindgen finds it.
fn libclang() -> Option<PathBuf> {
    let named = std::env::var_os("LIBCLANG_PATH").map(PathBuf::from);
    let libdir = read(Command::new("llvm-config").arg("--libdir")).ok();
    let mut folders: Vec<PathBuf> = libdir.iter().map(|text| text.trim().into()).collect();
    folders.extend(std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
    find_libclang(named.as_deref(), &folders, Path::new("/"))
}

/// The library itself, and not what often comes with it: LLVM and libclang are packages of their own.
///
/// As clang-sys looks: where `LIBCLANG_PATH` is set, only there (a folder, or the file); else in the folders given, and
/// in the usual ones and up to two levels below them.
fn find_libclang(named: Option<&Path>, folders: &[PathBuf], root: &Path) -> Option<PathBuf> {
    let is_it = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let rest = name.strip_prefix("libclang");
        let versioned = rest.and_then(|rest| rest.split_once(".so"));
        // libclang.so, libclang-14.so, libclang-14.so.1, libclang.so.1; not libclang-cpp.so, which is another library.
        let number = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == '.');
        versioned.is_some_and(|(version, after)| {
            number(version.strip_prefix('-').unwrap_or(version)) && number(after) && path.exists()
        })
    };
    let entries = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let within = |folder: &Path| entries(folder).into_iter().find(|path| is_it(path));
    if let Some(named) = named {
        return if named.is_file() { Some(named.to_path_buf()) } else { within(named) };
    }
    let mut level: Vec<PathBuf> = folders.to_vec();
    for usual in ["usr/lib", "usr/lib64", "usr/local/lib", "usr/local/lib64"] {
        level.push(root.join(usual));
    }
    for _ in 0..3 {
        if let Some(found) = level.iter().find_map(|folder| within(folder)) {
            return Some(found);
        }
        level = level.iter().flat_map(|folder| entries(folder)).filter(|path| path.is_dir()).collect();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A folder that is gone when the test is over.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
        fn file(&self, name: &str) -> PathBuf {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn llvm_without_libclang_is_not_enough() {
        let root = Folder::new("llvm");
        for other in ["libLLVM-14.so.1", "libclang-cpp.so.14", "libclang.a", "libclang.txt", "libclangAST.so"]
        {
            root.file(&format!("usr/lib/llvm-14/lib/{other}"));
        }
        let libdir = [root.0.join("usr/lib/llvm-14/lib")];
        assert_eq!(find_libclang(None, &libdir, &root.0), None);
        let library = root.file("usr/lib/llvm-14/lib/libclang-14.so.14.0.6");
        assert_eq!(find_libclang(None, &libdir, &root.0), Some(library.clone()));
        assert_eq!(find_libclang(None, &[], &root.0), Some(library));
    }

    #[test]
    fn libclang_is_found_where_distributions_put_it() {
        for place in [
            "usr/lib64/libclang.so.19.1",
            "usr/lib/x86_64-linux-gnu/libclang-14.so.1",
            "usr/lib/llvm-19/lib/libclang.so",
            "usr/local/lib/libclang.so",
        ] {
            let root = Folder::new("places");
            let library = root.file(place);
            assert_eq!(find_libclang(None, &[], &root.0), Some(library), "{place}");
        }
    }

    #[test]
    fn a_link_to_nothing_is_no_library() {
        let root = Folder::new("link");
        fs::create_dir_all(root.0.join("usr/lib")).unwrap();
        std::os::unix::fs::symlink("gone", root.0.join("usr/lib/libclang.so")).unwrap();
        assert_eq!(find_libclang(None, &[], &root.0), None);
    }

    #[test]
    fn libclang_path_is_the_only_place_where_it_is_set() {
        let root = Folder::new("named");
        root.file("usr/lib/libclang.so");
        let empty = root.0.join("usr");
        assert_eq!(find_libclang(Some(&empty), &[], &root.0), None);
        let own = root.file("own/libclang.so.1");
        assert_eq!(find_libclang(Some(&root.0.join("own")), &[], &root.0), Some(own.clone()));
        assert_eq!(find_libclang(Some(&own), &[], &root.0), Some(own));
    }
}
