//! Builds the C shim over DPDK when the feature `dpdk` is on, and nothing otherwise.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "dpdk")]
    dpdk();
}

/// Compiles the shim and links the named DPDK libraries. Device drivers are not linked and stay plug-ins.
#[cfg(feature = "dpdk")]
fn dpdk() {
    for file in ["dpdk/shim.c", "dpdk/shim.h"] {
        println!("cargo::rerun-if-changed={file}");
    }
    let mut build = cc::Build::new();
    build.file("dpdk/shim.c").warnings(true).extra_warnings(true);
    for flag in pkg_config(&["--cflags"]) {
        build.flag(&flag);
    }
    build.compile("rebate_dpdk");
    for flag in pkg_config(&["--libs-only-L"]) {
        println!("cargo::rustc-link-search=native={}", flag.trim_start_matches("-L"));
    }
    for library in ["rte_compressdev", "rte_mbuf", "rte_mempool", "rte_eal"] {
        println!("cargo::rustc-link-lib={library}");
    }
}

#[cfg(feature = "dpdk")]
fn pkg_config(wanted: &[&str]) -> Vec<String> {
    let output = std::process::Command::new("pkg-config").args(wanted).arg("libdpdk").output();
    let found = output.ok().filter(|output| output.status.success());
    let Some(output) = found else {
        panic!("the feature dpdk needs pkg-config and DPDK (Debian: pkg-config, libdpdk-dev)");
    };
    String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
}
