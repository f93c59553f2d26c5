//! The stock Thrift library for Python, with the code that its compiler makes of this repository's IDL. If it is not
//! installed, the tests that need it print a message and are skipped. With REBATE_THRIFT_REQUIRED=1, as in `test.sh`,
//! they fail.
#![allow(dead_code, reason = "each test uses its part")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns a command that runs a script of `tests/tests` with the library.
pub(crate) fn python(script: &str, arguments: &[&str]) -> Option<Command> {
    static STOCK: OnceLock<Option<(PathBuf, PathBuf)>> = OnceLock::new();
    let (python, code) = STOCK.get_or_init(stock).as_ref()?;
    let mut command = Command::new(python);
    command.arg(manifest_dir().join("tests").join(script)).args(arguments);
    command.env("PYTHONPATH", code).env("PYTHONDONTWRITEBYTECODE", "1");
    Some(command)
}

fn stock() -> Option<(PathBuf, PathBuf)> {
    let imports = |python: &&str| {
        let found = Command::new(python).args(["-c", "import thrift"]).output();
        found.is_ok_and(|output| output.status.success())
    };
    let Some(python) = ["/usr/bin/python3", "python3"].into_iter().find(imports) else {
        return missing("Python with thrift (package python3-thrift)");
    };
    let test = std::env::current_exe().ok()?;
    let code = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test.file_name()?).join("python");
    for name in ["memcached", "post_storage", "unique_id"] {
        generate("py", name, &code)?;
    }
    Some((python.into(), code))
}

/// Lets the stock compiler make code of `rpc/idl/NAME.thrift` in a folder.
pub(crate) fn generate(language: &str, name: &str, folder: &Path) -> Option<()> {
    std::fs::create_dir_all(folder).expect("a folder for what the compiler makes");
    let idl = manifest_dir().join(format!("../rpc/idl/{name}.thrift"));
    let mut compiler = Command::new("thrift");
    compiler.args(["--gen", language, "-out"]).arg(folder).arg(&idl);
    let Ok(output) = compiler.output() else {
        return missing("Thrift's compiler (package thrift-compiler)");
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(())
}

/// Returns the folder of the tests' package.
pub(crate) fn manifest_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Skips a test, or fails if the library is required.
pub(crate) fn missing<T>(what: &str) -> Option<T> {
    assert!(std::env::var_os("REBATE_THRIFT_REQUIRED").is_none(), "these tests need {what}");
    eprintln!("SKIPPED: this machine has no {what}");
    None
}
