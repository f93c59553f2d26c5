//! Checks the layers of the workspace with `cargo metadata`. A crate may use only crates on lower layers. The table in
//! `docs/architecture.md` must list each crate with the crates that it uses.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The crates and their layers. The base is -2. `harness` is directly above it, so that the tests and benchmarks of
/// every other crate may use it. The end-to-end tests drive a binary and may use any crate.
const LAYERS: [(&str, i32); 29] = [
    ("units", -2),
    ("tls", -2),
    ("harness", -1),
    ("api", 0),
    ("protocol", 0),
    ("report", 0),
    ("rpc", 0),
    ("store", 0),
    ("telemetry", 1),
    ("trace", 0),
    ("workload", 0),
    ("device", 1),
    ("model", 1),
    ("drivers", 2),
    ("policy", 2),
    ("runtime", 3),
    ("sim", 3),
    ("rebate-client", 3),
    ("rebate-c", 4),
    ("server", 4),
    ("load", 4),
    ("rpc-server", 4),
    ("planner", 4),
    ("fuzz", 5),
    ("simulation", 5),
    ("experiments", 5),
    ("cli", 6),
    ("rebate-python", 6),
    ("rebate-tests", 99),
];

fn layer(name: &str) -> Option<i32> {
    LAYERS.iter().find(|(other, _)| *other == name).map(|(_, layer)| *layer)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is above").to_owned()
}

/// Returns the crates of the workspace with their dependencies in the workspace. A dependency has a name and a flag
/// that says whether only tests use it.
fn crates() -> BTreeMap<String, Vec<(String, bool)>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let name = |package: &Value| package["name"].as_str().expect("a name").to_owned();
    let used = |package: &Value| {
        let all = package["dependencies"].as_array().expect("a list of dependencies");
        // Only a dependency inside the workspace has a path.
        let inside = all.iter().filter(|dependency| dependency["path"].is_string());
        inside.map(|dependency| (name(dependency), dependency["kind"] == "dev")).collect()
    };
    let packages = metadata["packages"].as_array().expect("a list of packages");
    packages.iter().map(|package| (name(package), used(package))).collect()
}

#[test]
fn every_crate_uses_only_lower_layers() {
    let mut wrong = Vec::new();
    for (user, dependencies) in crates() {
        let from = layer(&user).unwrap_or_else(|| panic!("{user} has no layer: give it one here"));
        for (used, _) in dependencies {
            match layer(&used) {
                Some(to) if to >= from => wrong.push(format!("{user} ({from}) uses {used} ({to})")),
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_layer_names_existing_crates() {
    let crates = crates();
    for (name, _) in LAYERS {
        assert!(crates.contains_key(name), "{name} is gone");
    }
}

#[test]
fn the_table_of_the_architecture_page_is_true() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).expect("the page");
    let documented = documented(&page);
    for (user, dependencies) in crates() {
        if user == "rebate-tests" {
            continue;
        }
        let short = |name: &str| name.strip_prefix("rebate-").unwrap_or(name).to_owned();
        let used = dependencies.iter().filter(|(_, only_tests)| !only_tests);
        let used: BTreeSet<String> = used.map(|(name, _)| short(name)).collect();
        let said = documented.get(&short(&user)).cloned().unwrap_or_default();
        assert_eq!(said, used, "what {user} uses: the table on the left, Cargo.toml on the right");
    }
}

/// Returns the table under `| crate | uses |`: each crate with the crates that it uses.
fn documented(page: &str) -> BTreeMap<String, BTreeSet<String>> {
    let rows = page.lines().skip_while(|line| *line != "| crate | uses |").skip(2);
    let mut documented: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in rows.take_while(|row| row.starts_with('|')) {
        let mut cells = row.trim_matches('|').split('|').map(quoted);
        let (users, used) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        for user in users {
            documented.entry(user).or_default().extend(used.iter().cloned());
        }
    }
    assert!(documented.len() > 10, "the table is there");
    documented
}

/// Returns the texts between backticks.
fn quoted(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}
