//! The floors of the workspace, read from `cargo metadata`: a room may use only rooms on lower floors.
//! The floors themselves are explained in docs/architecture.md.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Room and floor. The ground is -1; the end-to-end room drives a binary and may use anything.
const FLOORS: [(&str, i32); 19] = [
    ("units", -1),
    ("api", 0),
    ("protocol", 0),
    ("rpc", 0),
    ("store", 0),
    ("trace", 0),
    ("workload", 0),
    ("device", 1),
    ("model", 1),
    ("drivers", 2),
    ("policy", 2),
    ("runtime", 3),
    ("sim", 3),
    ("server", 4),
    ("load", 4),
    ("bench-service", 4),
    ("cli", 5),
    ("rebate-python", 5),
    ("rebate-tests", 99),
];

fn floor(room: &str) -> Option<i32> {
    FLOORS.iter().find(|(name, _)| *name == room).map(|(_, floor)| *floor)
}

fn packages() -> Vec<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is above");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .expect("cargo runs");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    metadata["packages"].as_array().expect("a list of packages").clone()
}

#[test]
fn every_edge_points_to_a_lower_floor() {
    let mut wrong = Vec::new();
    for package in packages() {
        let room = package["name"].as_str().expect("a package has a name");
        let from = floor(room).unwrap_or_else(|| panic!("{room} has no floor: give it one here"));
        for dependency in package["dependencies"].as_array().expect("a list of dependencies") {
            let used = dependency["name"].as_str().expect("a dependency has a name");
            // Only a dependency inside the workspace has a path.
            let inside = dependency["path"].is_string();
            match floor(used).filter(|_| inside) {
                Some(to) if to >= from => wrong.push(format!("{room} ({from}) uses {used} ({to})")),
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_floor_has_its_room() {
    let packages = packages();
    for (room, _) in FLOORS {
        assert!(packages.iter().any(|package| package["name"] == room), "{room} is gone");
    }
}
