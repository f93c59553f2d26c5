//! Writes `rpc/src/services/NAME.rs` from `rpc/idl/NAME.thrift`, for each service in `rpc::services::IDL`.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/services");
    for (name, text) in rpc::services::IDL {
        let code = match rpc::idl::parse(text) {
            Ok(schema) => rpc::idl::emit(&schema, &format!("rpc/idl/{name}.thrift")),
            Err(error) => {
                eprintln!("rpc/idl/{name}.thrift: {error}");
                return ExitCode::from(2);
            }
        };
        let path = folder.join(format!("{name}.rs"));
        if let Err(error) = std::fs::write(&path, code) {
            eprintln!("{}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
