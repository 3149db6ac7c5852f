//! Writes the archive of compiled kernels that a release embeds: `embed_kernels FILE`.

fn main() {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: embed_kernels FILE");
        std::process::exit(2);
    };
    match krylith::device::cuda::write_archive(path.as_ref()) {
        Ok(count) => println!("{count} images"),
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(e.exit_code().into());
        }
    }
}
