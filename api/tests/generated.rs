//! Checks that `src/generated` matches `proto/`. protox reads the files and tonic writes services and messages, so
//! protoc is not needed.
//!
//! After a change of `proto/`, `REBATE_GENERATE=write cargo test -p api --test generated` writes `src/generated` again.

use std::fs;
use std::path::Path;

use api::prost::Message;

#[test]
fn the_generated_code_is_that_of_the_proto_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let proto = root.join("../proto");
    let files = ["cache", "store", "compression", "scheduler"];
    let files = files.map(|name| proto.join(format!("rebate/v1/{name}.proto")));
    let descriptors = protox::compile(files, [&proto]).expect("the files are valid");
    let out = tempfile::tempdir().expect("a folder");
    fs::write(out.path().join("descriptors.bin"), descriptors.encode_to_vec()).expect("written");
    // Payloads are slices of the received bytes.
    let generator = tonic_prost_build::configure().bytes(".").out_dir(out.path());
    generator.compile_fds(descriptors).expect("the generator accepts them");
    for name in ["descriptors.bin", "rebate.v1.rs"] {
        let generated = fs::read(out.path().join(name)).expect("generated");
        let kept = root.join("src/generated").join(name);
        if std::env::var_os("REBATE_GENERATE").is_some_and(|mode| mode == "write") {
            fs::write(&kept, generated).expect("the source is writable");
        } else {
            let kept = fs::read(kept).expect("it is kept");
            assert!(kept == generated, "{name} is of other proto files; see the top of this test");
        }
    }
}
