//! Compiles `proto/` to Rust, without protoc: protox reads the files, tonic writes services and messages.

use std::path::PathBuf;
use std::{env, error, fs};

use prost::Message;

fn main() -> Result<(), Box<dyn error::Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../proto");
    println!("cargo::rerun-if-changed={}", root.display());
    let files = ["cache", "store", "compression", "scheduler"];
    let files = files.map(|name| root.join(format!("rebate/v1/{name}.proto")));
    let descriptors = protox::compile(files, [&root])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    // Payloads are slices of what was received.
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
