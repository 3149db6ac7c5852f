//! Enumerates every kernel that the library can launch, so that CI can compile each without a GPU.
//!
//! Only the structure inside the blocks depends on a user's matrix. The structures of the problems that ship
//! with Krylith stand for it here.

use super::compiler::Kernel;
use super::launch::{File, Set};
use super::{
    assemble, block, block_tiles, csr, csr_halo, cudss, cut, dia, diagonal, driver, exchange, factors,
    multilevel,
};
use super::{
    held, interleaved, part, passes, product, replicated, resident, scan, schwarz, structure, tiling, vanka,
    vectors,
};
use crate::space::Precision;
use std::collections::HashSet;

/// The kernel files; the modules that launch the kernels declare them.
const FILES: &[&File] = &[
    &assemble::ASSEMBLE,
    &block::BLOCK,
    &block_tiles::TILE_FACTOR,
    &block_tiles::TILE_SOLVE,
    &csr::CSR,
    &csr::CSR_LANES,
    &csr_halo::CSR_GHOSTS,
    &csr_halo::CSR_SPLIT,
    &cut::COARSEN,
    &cut::REFINE,
    &dia::DIA,
    &dia::DIA_DETECT,
    &dia::DIA_PAIRS,
    &diagonal::BLOCK_DIAGONAL,
    &diagonal::JACOBI,
    &driver::READ,
    &exchange::GATHER,
    &factors::ILDU_FACTOR,
    &factors::ILDU_ORDER,
    &factors::ILDU_PLAN,
    &factors::ILDU_SOLVE,
    &factors::ILDU_STREAM,
    &factors::ILDU_TRANSPOSE,
    &held::HELD,
    &interleaved::INTERLEAVE,
    &interleaved::INTERLEAVED,
    &multilevel::AGGREGATE,
    &multilevel::BF16,
    &multilevel::BLOCK_PRODUCTS,
    &multilevel::BOUNDARY,
    &multilevel::FETCH,
    &multilevel::COUPLINGS,
    &multilevel::GALERKIN,
    &multilevel::INTERPOLATE,
    &multilevel::MULTIPASS,
    &multilevel::NARROW,
    &multilevel::NARROW_BLOCK,
    &multilevel::NEAR_NULL,
    &multilevel::PATHS,
    &multilevel::ROWS,
    &multilevel::SMOOTH,
    &multilevel::SPLIT,
    &multilevel::TRANSFER,
    &multilevel::TRANSPOSE,
    &multilevel::WIDE,
    &part::PART,
    &passes::PASSES,
    &passes::RANDOM,
    &product::KRON_PRODUCT,
    &replicated::REPLICATED,
    &cudss::BATCH,
    &resident::ARRAYS,
    &resident::ROW_SCALED,
    &scan::SCAN,
    &scan::SCAN_COLUMNS,
    &schwarz::SCHWARZ_FACTOR,
    &schwarz::SCHWARZ_HALO,
    &schwarz::SCHWARZ_SOLVE,
    &structure::STRUCTURE,
    &tiling::TILING,
    &vanka::VANKA,
    &vectors::APPEND,
    &vectors::COMBINE,
    &vectors::PROJECT,
    &vectors::STEP,
    &vectors::SWEEP,
];

macro_rules! headers {
    ($($name:literal),* $(,)?) => {
        /// Headers that kernel files include.
        const HEADERS: &[(&str, &str)] = &[$(($name, include_str!(concat!("kernels/", $name)))),*];
    };
}
headers! {
    "amg.cuh", "amg_galerkin.cuh", "amg_table.cuh", "bf16.cuh", "cut.cuh", "dia.cuh", "halo.cuh", "ildu.cuh", "ildu_plan.cuh",
    "kron_pack.cuh", "kron_residual.cuh", "peers.cuh", "pivots.cuh", "scan.cuh", "schwarz.cuh", "search.cuh",
    "smooth.cuh", "step.cuh", "tile.cuh", "twofold.cuh",
}

/// Returns the text of a kernel file or header.
pub(super) fn text(name: &str) -> &'static str {
    let file = FILES.iter().find(|file| file.name == name).map(|file| file.text);
    let header = || HEADERS.iter().find(|header| header.0 == name).map(|header| header.1);
    file.or_else(header).unwrap_or_else(|| panic!("no kernel file {name}"))
}

/// Both precisions of storage.
pub(super) const STORES: [Precision; 2] = [Precision::F64, Precision::F32];

pub(crate) fn define(name: &str, value: impl ToString) -> (String, String) {
    (name.into(), value.to_string())
}

pub(crate) fn value(precision: Precision) -> (String, String) {
    define("VALUE", if precision == Precision::F64 { "double" } else { "float" })
}

/// The constants of a kernel with a matrix in bf16, whose diagonal is apart (`APART` of
/// `kernels/smooth.cuh`).
pub(crate) fn apart(how: u32) -> [(String, String); 2] {
    [define("VALUE", "bf16"), define("APART", how)]
}

/// The constants of a kernel with vectors in f32, and nothing for vectors in f64.
pub(crate) fn vectors(precision: Precision) -> Option<(String, String)> {
    (precision == Precision::F32).then(|| define("REAL", "float"))
}

/// The constant of a kernel with vectors in f32 that stores its result in f64.
pub(crate) fn result(wide: bool) -> Option<(String, String)> {
    wide.then(|| define("RESULT", "double"))
}

fn of(files: impl Iterator<Item = &'static &'static File>, set: Set) -> Vec<Kernel> {
    files.flat_map(|file| (file.specialisations)(set)).collect()
}

/// Returns every kernel except the products, which [`products()`] lists. Of each compiled file it lists one
/// kernel, because a file is compiled as a whole.
pub fn vector_kernels() -> Vec<Kernel> {
    of(FILES.iter().filter(|file| file.name != product::KRON_PRODUCT.name), Set::All)
}

/// Returns the fused products for all block sizes and stages, and the structures of the problems that ship
/// with Krylith.
pub fn products() -> Vec<Kernel> {
    (product::KRON_PRODUCT.specialisations)(Set::All)
}

/// Returns the kernels of common sizes, which a release embeds: one of each file with its constants, because
/// a file is compiled as a whole.
pub fn embedded() -> Vec<Kernel> {
    let (mut known, mut kernels) = (HashSet::new(), of(FILES.iter(), Set::Common));
    kernels.retain(|kernel| known.insert((kernel.file, kernel.defines.clone())));
    kernels
}

/// Returns the variants of the common kernels that preconditioners with `precond_precision=f32` use: numbers
/// or vectors in f32, and the same sizes.
pub fn narrow() -> Vec<Kernel> {
    let key = |kernel: &Kernel| (kernel.file, kernel.defines.clone());
    let mut known: HashSet<_> = embedded().iter().map(key).collect();
    let common = known.clone();
    let in_f64 = |kernel: &Kernel| {
        let wide = kernel.defines.iter().filter(|(name, _)| !matches!(&**name, "REAL" | "RESULT"));
        let all = wide
            .map(|pair| if *pair == value(Precision::F32) { value(Precision::F64) } else { pair.clone() });
        (kernel.file, all.collect::<Vec<_>>())
    };
    let mut kernels = vector_kernels();
    kernels.retain(|kernel| {
        let float = kernel.defines.iter().any(|(_, value)| value == "float");
        float && common.contains(&in_f64(kernel)) && known.insert(key(kernel))
    });
    kernels
}

/// Returns the variants of the common kernels that cycles with `precond_precision=bf16` use: those that store
/// a matrix in bf16, and those that round to it.
pub fn short() -> Vec<Kernel> {
    let common: HashSet<_> = embedded().into_iter().map(|kernel| (kernel.file, kernel.defines)).collect();
    let in_f32 = |kernel: &Kernel| {
        let all = kernel.defines.iter().filter(|(name, _)| name != "APART");
        let stored = |pair: &(String, String)| match pair.1 == "bf16" {
            true => value(Precision::F32),
            false => pair.clone(),
        };
        (kernel.file, all.map(stored).collect::<Vec<_>>())
    };
    let mut kernels = vector_kernels();
    kernels.retain(|kernel| {
        let stored = kernel.defines.iter().any(|(_, value)| value == "bf16");
        kernel.file == multilevel::BF16.name || stored && common.contains(&in_f32(kernel))
    });
    kernels
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `krylith warm --precond-precision bf16` compiles cycles in bf16 of every common size.
    #[test]
    fn short_kernels_are_those_of_the_common_sizes() {
        let short = short();
        // A residual or step, a step from zero, and one with a result in f64, for two kinds of storage.
        for (name, count) in
            [("dia.cu", 6), ("dia_pairs.cu", 6), ("csr.cu", 2), ("csr_lanes.cu", 2), ("amg_bf16.cu", 1)]
        {
            assert_eq!(short.iter().filter(|kernel| kernel.file == name).count(), count, "{name}");
        }
        let narrow = narrow();
        assert!(short.iter().all(|k| narrow.iter().all(|n| (n.file, &n.defines) != (k.file, &k.defines))));
    }

    /// `krylith warm --precond-precision f32` compiles factors and cycles in f32 of every common size.
    #[test]
    fn narrow_kernels_are_those_of_the_common_sizes() {
        let narrow = narrow();
        for name in ["ildu_solve.cu", "ildu_factor.cu", "ildu_stream.cu", "schwarz_solve.cu"] {
            let own: Vec<_> = narrow.iter().filter(|kernel| kernel.file == name).collect();
            let orders = |all: &mut dyn Iterator<Item = &Kernel>| -> HashSet<String> {
                all.flat_map(|k| &k.defines)
                    .filter(|(name, _)| name == "ORDER")
                    .map(|d| d.1.clone())
                    .collect()
            };
            let common = embedded();
            let mut all = common.iter().filter(|kernel| kernel.file == name);
            assert_eq!(orders(&mut own.iter().copied()), orders(&mut all), "{name}");
        }
        let computes = |kernel: &Kernel| kernel.defines.contains(&define("REAL", "float"));
        for name in ["ildu_solve.cu", "schwarz_solve.cu", "schwarz_halo.cu"] {
            assert!(narrow.iter().any(|kernel| kernel.file == name && computes(kernel)), "{name}");
        }
        let known: HashSet<_> = vector_kernels().into_iter().map(|k| (k.file, k.defines)).collect();
        assert!(narrow.iter().all(|kernel| known.contains(&(kernel.file, kernel.defines.clone()))));
    }

    /// Returns the text without comments, with one preprocessor statement per line.
    fn clean(text: &str) -> String {
        let lines = text.lines().map(|line| line.split("//").next().unwrap_or("").trim_end());
        lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ")
    }

    /// Returns the contents of the parentheses that open at the beginning of `text`.
    fn inside(text: &str) -> &str {
        let mut depth = 0;
        let end = text.char_indices().find(|(_, c)| {
            depth += i32::from(*c == '(') - i32::from(*c == ')');
            depth == 0
        });
        &text[1..end.expect("a parenthesis that closes").0]
    }

    /// Returns macros without arguments, with every text that one may stand for.
    fn macros(text: &str) -> Vec<(&str, &str)> {
        let defined = text.lines().filter_map(|line| line.trim_start().strip_prefix("#define "));
        defined.map(|line| line.trim().split_once(' ').unwrap_or((line.trim(), ""))).collect()
    }

    /// Returns `text` with the functions that macros of two or more arguments define, such as `PRODUCT(name,
    /// …)` in `dia.cu`.
    fn with_macro_functions(text: &str) -> String {
        let mut all = text.to_string();
        for line in text.lines().filter(|line| line.starts_with("#define ") && line.contains("__global__")) {
            let (head, body) = line["#define ".len()..].split_once(')').unwrap();
            let (name, arguments) = head.split_once('(').unwrap();
            let Some(first) = arguments.split(',').next() else { continue };
            for call in text.lines().filter(|line| line.starts_with(&format!("{name}("))) {
                let function = inside(&call[name.len()..]).split(',').next().unwrap().trim();
                all.push_str(&format!("\n{}", body.replace(&format!(" {first}("), &format!(" {function}("))));
            }
            all = all.replace(line, "");
        }
        all
    }

    /// Returns the parameter lists that a text with `#if` and macros may stand for.
    fn alternatives(parameters: &str, macros: &[(&str, &str)]) -> Vec<String> {
        if let Some((before, rest)) = parameters.split_once("#if") {
            let (branches, after) = rest.split_once("#endif").expect("an end");
            let branches = branches.split_once('\n').expect("a condition").1;
            let (first, second) = branches.split_once("#else").unwrap_or((branches, ""));
            let both = [first, second].map(|branch| format!("{before}{branch}{after}"));
            return both.iter().flat_map(|text| alternatives(text, macros)).collect();
        }
        let word = |name: &str| {
            let at = parameters.find(name)?;
            let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            let whole = !is_part(parameters[..at].chars().last());
            (whole && !is_part(parameters[at + name.len()..].chars().next())).then_some(at)
        };
        let argument = |name: &&str| {
            name.len() > 1 && *name != "VALUE" && name.chars().all(|c| c.is_uppercase() || c == '_')
        };
        let Some((name, at)) = macros.iter().map(|m| m.0).filter(argument).find_map(|m| Some((m, word(m)?)))
        else {
            return vec![parameters.into()];
        };
        let texts = macros.iter().filter(|m| m.0 == name).map(|m| m.1);
        let replaced =
            texts.map(|text| format!("{}{text}{}", &parameters[..at], &parameters[at + name.len()..]));
        replaced.flat_map(|text| alternatives(&text, macros)).collect()
    }

    /// Returns a parameter's type as Rust declares it.
    fn declared_type(parameter: &str) -> String {
        let words = parameter.replace("__restrict__", " ").replace('*', " * ");
        let words: Vec<_> = words.split_whitespace().filter(|word| *word != "const").collect();
        let (_, of) = words.split_last().expect("a name");
        let pointer = of.last() == Some(&"*");
        let number = match of[..of.len() - usize::from(pointer)].join(" ").as_str() {
            "int" => "i32",
            "unsigned" | "u32" => "u32",
            "long long" | "i64" => "i64",
            "unsigned long long" | "u64" | "usize" => "u64",
            "unsigned short" => "u16",
            "char" | "u8" => "u8",
            "double" => "f64",
            "float" => "f32",
            "int2" => "[i32; 2]",
            "uint2" => "[u32; 2]",
            "double2" => "[f64; 2]",
            "VALUE" if pointer => return "Reals".into(),
            _ if pointer => return "Address".into(),
            other => return other.into(),
        };
        if pointer { format!("At<{number}>") } else { number.into() }
    }

    /// Returns the functions of a file with the type lists that each may have.
    fn functions(file: &File) -> Vec<(String, Vec<Vec<String>>)> {
        let kernel = Kernel { file: file.name, text: None, entry: "", defines: Vec::new() };
        let text = with_macro_functions(&clean(&super::super::compiler::source(&kernel)));
        let macros = macros(&text);
        let found = text.split("extern \"C\" __global__").skip(1).map(|function| {
            let function = function.trim_start().strip_prefix("void").expect("void").trim_start();
            let function = match function.strip_prefix("__launch_bounds__") {
                Some(rest) => rest[inside(rest).len() + 2..].trim_start(),
                None => function,
            };
            let open = function.find('(').expect("parameters");
            let name = function[..open].trim();
            let name = macros.iter().find(|m| m.0 == name).map_or(name, |m| m.1);
            let lists = alternatives(inside(&function[open..]), &macros).into_iter().map(|list| {
                let list = list.replace(" PARAMETERS", "").replace(" SMOOTH_ARGUMENT", "");
                list.split(',').filter(|p| !p.trim().is_empty()).map(declared_type).collect()
            });
            (name.to_string(), lists.collect())
        });
        found.collect()
    }

    /// Every function of every file is declared, with the number, order and types of its arguments. A
    /// declaration may have more arguments than a kernel that was compiled with other constants.
    #[test]
    fn declarations_are_those_of_the_sources() {
        let mut count = 0;
        for file in FILES {
            let functions = functions(file);
            let declared = |name: &str| -> Vec<Vec<&str>> {
                let of = file.entries.iter().filter(|entry| entry.0.contains(&name));
                of.map(|entry| entry.1.iter().map(|argument| argument.1).collect()).collect()
            };
            for (name, lists) in &functions {
                count += 1;
                let declared = declared(name);
                assert!(!declared.is_empty(), "{name} of {} is not declared", file.name);
                // A variant made by other constants may be declared under another name of the file.
                for list in lists {
                    let list: Vec<&str> = list.iter().map(|t| &**t).collect();
                    let all = file.entries.iter().map(|entry| entry.1.iter().map(|argument| argument.1));
                    let fits = all.into_iter().any(|types| types.take(list.len()).eq(list.iter().copied()));
                    assert!(fits, "{name} of {} has {list:?}, and is declared as {declared:?}", file.name);
                }
                for types in declared {
                    assert!(
                        lists.iter().any(|list| *list == types),
                        "{name} of {}: {types:?}, but has {lists:?}",
                        file.name
                    );
                }
            }
            for (names, _) in file.entries {
                for name in *names {
                    let known = functions.iter().any(|function| function.0 == *name);
                    assert!(known, "{} has no function {name}", file.name);
                }
            }
        }
        assert!(count > 170, "{count} functions were found");
    }

    #[test]
    fn specialisations_are_of_their_file_and_all_contain_the_common() {
        for file in FILES {
            let all = (file.specialisations)(Set::All);
            assert!(!all.is_empty(), "{} is never compiled", file.name);
            assert!(all.iter().all(|kernel| kernel.file == file.name), "{}", file.name);
            for kernel in (file.specialisations)(Set::Common) {
                assert!(all.iter().any(|other| other.defines == kernel.defines), "{kernel:?}");
            }
        }
    }

    /// A file that exists but is not declared would never be compiled.
    #[test]
    fn every_file_is_listed() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/device/cuda/kernels");
        for file in std::fs::read_dir(folder).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            let known = FILES.iter().any(|file| file.name == name) || HEADERS.iter().any(|h| h.0 == name);
            assert!(known, "{name} is in no list of specialisations.rs");
        }
    }
}
