//! Writes the archive of compiled kernels that a release embeds: `embed_kernels FILE`.

use krylith_core::{Result, device::cuda, io::atomic};

fn main() {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: embed_kernels FILE");
        std::process::exit(2);
    };
    let written = || -> Result<usize> {
        let (archive, count) = cuda::archive()?;
        atomic::write(&path, |file| file.write_all(&archive))?;
        Ok(count)
    };
    match written() {
        Ok(count) => println!("{count} images"),
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(e.exit_code().into());
        }
    }
}
