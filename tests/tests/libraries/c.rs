//! The C library: `cc` compiles a program with `rebate.h`, and it runs against the binary and memcached.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rebate_tests::Server;
use tempfile::TempDir;

use super::Near;

/// Returns the folder of the built library, which is next to this test or above it.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let folders = test.ancestors().skip(1).take(2);
    let found = folders.map(Path::to_owned).find(|folder| folder.join("librebate.so").exists());
    found.expect("`cargo build -p rebate-c` makes librebate.so")
}

/// Compiles the program as C or as C++. Returns none if there is no compiler.
fn compiled(folder: &TempDir, compiler: &str, language: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (program, library) = (folder.path().join("program"), library());
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-g", "-x", language]);
    command.arg(root.join("tests/libraries/program.c")).args(["-x", "none", "-o"]).arg(&program);
    command.arg("-I").arg(root.join("../c/include")).arg("-L").arg(&library);
    command.arg(format!("-Wl,-rpath,{}", library.display())).arg("-lrebate");
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "CI needs {compiler}: {error}");
            eprintln!("SKIPPED: this machine lacks {compiler}");
            return None;
        }
    };
    assert!(output.status.success(), "{}", text(&output));
    Some(program)
}

fn text(output: &Output) -> String {
    let [out, errors] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{errors}")
}

/// Runs the program against a server.
fn run(command: &mut Command, servers: impl AsRef<OsStr>) -> String {
    let output = command.arg(servers).output().expect("the program starts");
    assert!(output.status.success(), "{command:?}\n{}", text(&output));
    text(&output)
}

#[test]
fn a_c_program_sees_the_same_on_all_connections() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled(&folder, "cc", "c") else { return };
    let (memcached, rebate) = (Server::memcached(&[]), Near::start());
    let expected = run(&mut Command::new(&program), memcached.addr().to_string());
    assert!(expected.contains("get greeting: hello 5 flags 7"), "{expected}");
    for server in [rebate.near(), rebate.server.addr().to_string()] {
        assert_eq!(run(&mut Command::new(&program), &server), expected, "{server}");
    }
    assert_eq!(
        rebate.server.client().ask(b"get greeting").bytes,
        b"VALUE greeting 7 5\r\nhello\r\nEND\r\n"
    );
    let three = [Server::memcached(&[]), Server::memcached(&[]), Server::memcached(&[])];
    let list = three.each_ref().map(|server| server.addr().to_string()).join(",");
    assert_eq!(run(&mut Command::new(&program), &list), expected, "{list}");
}

#[test]
fn a_c_program_makes_no_error_of_memory() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "CI needs valgrind");
        return eprintln!("SKIPPED: this machine lacks valgrind");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled(&folder, "cc", "c") else { return };
    // valgrind takes a minute to read what a debugger needs of the library.
    let stripped = folder.path().join("librebate.so");
    let built = library().join("librebate.so");
    let strip =
        Command::new("strip").args(["--strip-debug", "-o"]).arg(&stripped).arg(built).status();
    assert!(strip.expect("binutils has strip").success());
    let rebate = Near::start();
    for server in [rebate.near(), rebate.server.addr().to_string()] {
        let mut valgrind = Command::new("valgrind");
        // valgrind takes results of system calls for undefined if they are made without libc.
        let leaks = ["--undef-value-errors=no", "--leak-check=full", "--errors-for-leak-kinds=all"];
        valgrind.args(["--quiet", "--error-exitcode=9"]).args(leaks).arg(&program);
        run(valgrind.env("LD_LIBRARY_PATH", folder.path()), &server);
    }
}

#[test]
fn the_header_is_also_one_of_cpp() {
    let folder = tempfile::tempdir().expect("a folder");
    compiled(&folder, "c++", "c++");
}
