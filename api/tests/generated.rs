//! Checks that `src/generated` matches `proto/`, and that `proto/` has the codecs of `units`. protox reads the files
//! and tonic writes services and messages, so protoc is not needed.
//!
//! After a change of `proto/` or of the table of codecs, `REBATE_GENERATE=write cargo test -p api --test generated`
//! writes the codecs into `proto/rebate/v1/cache.proto` and `src/generated` again.

use std::fs;
use std::path::Path;

use api::prost::Message;
use units::Codec;

/// Compares a file of the repository with what it should be, or writes it.
fn assert_written(path: &Path, wanted: &[u8]) {
    if std::env::var_os("REBATE_GENERATE").is_some_and(|mode| mode == "write") {
        fs::write(path, wanted).expect("the source is writable");
    } else {
        let found = fs::read(path).expect("the file is there");
        assert!(found == wanted, "{} is out of date; see the top of this test", path.display());
    }
}

/// Writes the lines of the table's codecs into the enum of the interface.
fn check_codecs(file: &Path) {
    let text = fs::read_to_string(file).expect("the interface");
    let (before, rest) = text.split_once(CODECS_BEGIN).expect("the comment on the codecs");
    let (_, after) = rest.split_once("}\n").expect("the end of the enum");
    let lines = Codec::ALL.map(|codec| {
        let name = codec.name().to_uppercase().replace('-', "_");
        format!("  CODEC_{name} = {};\n", codec.grpc_number())
    });
    let wanted = format!("{before}{CODECS_BEGIN}{}}}\n{after}", lines.concat());
    assert_written(file, wanted.as_bytes());
}

/// The end of the comment above the codecs in the interface.
const CODECS_BEGIN: &str = "from that table (api/tests/generated.rs).\n";

#[test]
fn the_generated_code_is_that_of_the_proto_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let proto = root.join("../proto");
    check_codecs(&proto.join("rebate/v1/cache.proto"));
    let files = ["cache", "store", "compression", "scheduler"];
    let files = files.map(|name| proto.join(format!("rebate/v1/{name}.proto")));
    let descriptors = protox::compile(files, [&proto]).expect("the files are valid");
    let out = tempfile::tempdir().expect("a folder");
    fs::write(out.path().join("descriptors.bin"), descriptors.encode_to_vec()).expect("written");
    // Payloads are slices of the received bytes.
    let generator = tonic_prost_build::configure().bytes(".").out_dir(out.path());
    // Few jobs have these, and an empty job of a call takes as much memory as they do.
    let generator = ["cipher", "follow"].into_iter().fold(generator, |generator, field| {
        generator.boxed(format!(".rebate.v1.RunRequest.{field}"))
    });
    generator.compile_fds(descriptors).expect("the generator accepts them");
    for name in ["descriptors.bin", "rebate.v1.rs"] {
        let generated = fs::read(out.path().join(name)).expect("generated");
        assert_written(&root.join("src/generated").join(name), &generated);
    }
}
