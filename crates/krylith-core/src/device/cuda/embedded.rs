//! Compiled kernels inside the library, for machines without NVRTC.
//!
//! A release embeds cubins of the common sizes for sm_80, sm_90 and sm_100, and PTX that other architectures
//! translate. NVRTC 12 compiles them, because drivers of CUDA 12 refuse code of NVRTC 13. Each is looked up
//! by the same hash as a file of the cache, so an image made from other sources is never used. The archive
//! consists of entries: 32 bytes of hash, 8 bytes of length and a zlib stream of the image.

use super::compiler::{Kernel, Target};
use crate::{Error, Result};
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use rayon::prelude::*;
use std::io::{Read, Write};

static ARCHIVE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels.bin"));
const ENTRY: usize = 40;

/// Returns the image with this hash, if it was embedded.
pub(super) fn find(hash: &[u8; 32]) -> Option<Vec<u8>> {
    search(ARCHIVE, hash)
}

/// Number of images in the library.
pub fn embedded_kernels() -> usize {
    entries(ARCHIVE).count()
}

fn entries(archive: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = archive;
    std::iter::from_fn(move || {
        let (head, tail) = rest.split_at_checked(ENTRY)?;
        let length = u64::from_le_bytes(head[32..].try_into().ok()?) as usize;
        let (image, next) = tail.split_at_checked(length)?;
        rest = next;
        Some((&head[..32], image))
    })
}

fn search(archive: &[u8], hash: &[u8; 32]) -> Option<Vec<u8>> {
    let (_, packed) = entries(archive).find(|(h, _)| *h == hash)?;
    let mut image = Vec::new();
    ZlibDecoder::new(packed).read_to_end(&mut image).ok()?;
    Some(image)
}

/// Appends an image to an archive in memory.
fn append(archive: &mut Vec<u8>, hash: &[u8; 32], image: &[u8]) -> std::io::Result<()> {
    let mut packed = ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(image)?;
    let packed = packed.finish()?;
    archive.extend_from_slice(hash);
    archive.extend_from_slice(&(packed.len() as u64).to_le_bytes());
    archive.extend_from_slice(&packed);
    Ok(())
}

/// Compiles the kernels that a release embeds. Returns the bytes of the archive and the number of its images.
///
/// # Errors
/// A missing NVRTC; a kernel that does not compile.
pub fn archive() -> Result<(Vec<u8>, usize)> {
    let kernels = super::specialisations::embedded();
    let targets = super::compiler::EMBEDDED_TARGETS;
    let wanted: Vec<_> = kernels.iter().flat_map(|kernel| targets.map(|target| (kernel, target))).collect();
    let pack = |(kernel, target): &(&Kernel, Target)| {
        let (hash, image) = super::compiler::image_for(kernel, *target)?;
        let mut entry = Vec::new();
        append(&mut entry, &hash, &image)
            .map_err(|e| Error::Internal(format!("a kernel cannot be packed: {e}")))?;
        Ok(entry)
    };
    let entries: Vec<Vec<u8>> = wanted.par_iter().map(pack).collect::<Result<_>>()?;
    Ok((entries.concat(), wanted.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_found_by_their_hash() {
        let mut archive = Vec::new();
        append(&mut archive, &[1; 32], b"first").unwrap();
        append(&mut archive, &[2; 32], &[7; 1000]).unwrap();
        assert_eq!(search(&archive, &[1; 32]).as_deref(), Some(&b"first"[..]));
        assert_eq!(search(&archive, &[2; 32]), Some(vec![7; 1000]));
        assert_eq!(search(&archive, &[3; 32]), None);
        assert_eq!(search(&archive[..archive.len() - 1], &[2; 32]), None);
        assert_eq!(search(&[], &[1; 32]), None);
    }
}
