//! Measures where the time of a get goes over each kind of connection to a cache on this host: shared memory, TCP and
//! a Unix socket to `rebate serve`, and both sockets to memcached. The server and the client have a core each. A
//! client of `rebate-client` sends the next get when it has the answer to the last one, so the time of a get is that
//! of all its stages. `bench/near.py` has libmemcached as well, which is a library in C.
//!
//! The module draws no conclusions, and measures nothing if there are fewer than two cores.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::{CpuModes, Process, memcached, memcached_on_socket};
use rebate_client::{Client, Options, Write};
use rpc_server::allowed_cores;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::base::rows::Row;

/// What a side is called in the rows' ids, and what it is.
const SIDES: [(&str, &str); 5] = [
    ("near", "rebate serve over shared memory"),
    ("tcp", "rebate serve over TCP"),
    ("unix", "rebate serve over a Unix socket"),
    ("memcached_tcp", "memcached over TCP"),
    ("memcached_unix", "memcached over a Unix socket"),
];

/// The columns of a side: a part of the ids, words for people, and the unit.
const COLUMNS: [(&str, &str, &str); 6] = [
    ("p50", "median time of a get", "us"),
    ("server_user", "the server's own code with its polling, processor time of a get", "ns"),
    ("server_system", "the server in the kernel, processor time of a get", "ns"),
    ("client_user", "the client's own code with its polling, processor time of a get", "ns"),
    ("client_system", "the client in the kernel, processor time of a get", "ns"),
    ("kernel_share", "the kernel's share of the processor time of both", "%"),
];

type Sample = [f64; COLUMNS.len()];

/// Returns the rows. They have a reason instead of numbers where a side could not be measured. Returns no rows if
/// `stop` is set before they are complete.
pub(super) fn rows(quick: bool, stop: &AtomicBool) -> Vec<Row> {
    let (runs, duration) =
        if quick { (1, Duration::from_millis(100)) } else { (RUNS, Duration::from_secs(1)) };
    let mut samples = SIDES.map(|_| Vec::new());
    let measured = measure(runs, duration, stop, &mut samples);
    if stop.load(Ordering::Relaxed) {
        return Vec::new();
    }
    as_rows(&samples, measured.err().as_deref())
}

fn as_rows(samples: &[Vec<Sample>; SIDES.len()], reason: Option<&str>) -> Vec<Row> {
    let mut rows = Vec::new();
    for ((side, words), samples) in SIDES.into_iter().zip(samples) {
        for (column, (name, what, unit)) in COLUMNS.into_iter().enumerate() {
            let values = samples.iter().map(|sample| sample[column]);
            let (id, what) = (format!("wire.{side}.{name}"), format!("{words}: {what}"));
            let reason = reason.map(str::to_owned);
            rows.push(Row::from_values(id, what, unit, values, Vec::new(), reason));
        }
    }
    rows
}

/// Takes samples of all sides, which take turns.
fn measure(
    runs: usize,
    duration: Duration,
    stop: &AtomicBool,
    samples: &mut [Vec<Sample>; SIDES.len()],
) -> Result<(), String> {
    let cores = allowed_cores().map_err(|error| format!("no cores are told: {error}"))?;
    let [server_core, client_core, ..] = cores[..] else {
        return Err("the server and the client need a core each".to_owned());
    };
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let [near, unix, theirs] = ["near", "rebate", "memcached"].map(|name| folder.path().join(name));
    let args = server_args(&near, &unix);
    let mut ours = Process::rebate("rebate serve", &args, Some(server_core))?;
    let [tcp] = ours.lines_after(["listening on "])?;
    let (over_tcp, port) = memcached(None, Some(server_core), std::process::Stdio::inherit(), &[])?;
    let over_unix = memcached_on_socket(&theirs, Some(server_core))?;
    let sides = [
        (format!("near:{}", near.display()), &ours),
        (tcp, &ours),
        (format!("unix:{}", unix.display()), &ours),
        (format!("127.0.0.1:{port}"), &over_tcp),
        (format!("unix:{}", theirs.display()), &over_unix),
    ];
    for _ in 0..runs {
        for ((address, server), samples) in sides.iter().zip(&mut *samples) {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let sample = || one(address, server, client_core, duration);
            // The thread's core must not be inherited by what this process starts later.
            let sample = thread::scope(|scope| scope.spawn(sample).join().expect("no panic"))?;
            samples.push(sample);
        }
    }
    Ok(())
}

fn server_args(near: &Path, unix: &Path) -> Vec<String> {
    let mut args: Vec<String> = ["serve", "--threads", "1", "--listen", "127.0.0.1:0"]
        .into_iter()
        .map(str::to_owned)
        .collect();
    args.extend(["--compress", "off"].map(str::to_owned));
    for (flag, path) in [("--near-listen", near), ("--unix-socket", unix)] {
        args.extend([flag.to_owned(), path.display().to_string()]);
    }
    args
}

/// Gets a value again and again for `duration`, on one core.
fn one(address: &str, server: &Process, core: usize, duration: Duration) -> Result<Sample, String> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).map_err(|error| format!("the client's core: {error}"))?;
    let failed = |error: rebate_client::Error| format!("{address}: {error}");
    let mut client = Client::new(&[address], Options::default()).map_err(failed)?;
    let value = vec![b'v'; VALUE_BYTES];
    client.set(KEY, &value, Write::default()).map_err(failed)?;
    let mut get = || match client.get(KEY) {
        Ok(Some(item)) if item.value == value => Ok(()),
        Ok(_) => Err(format!("{address}: a wrong answer")),
        Err(error) => Err(failed(error)),
    };
    let warm_until = Instant::now() + duration / 8;
    while Instant::now() < warm_until {
        get()?;
    }
    let before = (server.cpu_modes(), CpuModes::of_thread());
    let begun = Instant::now();
    let mut took_ns = Vec::with_capacity(1 << 20);
    let mut since = begun;
    while since - begun < duration {
        get()?;
        let now = Instant::now();
        took_ns.push((now - since).as_nanos() as f64);
        since = now;
    }
    let after = (server.cpu_modes(), CpuModes::of_thread());
    took_ns.sort_unstable_by(f64::total_cmp);
    let gets = took_ns.len() as f64;
    let each = |before: CpuModes, after: CpuModes| {
        let ns = |before_s: f64, after_s: f64| (after_s - before_s) * 1e9 / gets;
        [ns(before.user_s, after.user_s), ns(before.system_s, after.system_s)]
    };
    let [server_user, server_system] = each(before.0, after.0);
    let [client_user, client_system] = each(before.1, after.1);
    let kernel = server_system + client_system;
    let share = 100.0 * kernel / (kernel + server_user + client_user);
    let p50_us = took_ns[took_ns.len() / 2] / 1e3;
    Ok([p50_us, server_user, server_system, client_user, client_system, share])
}

const RUNS: usize = 5;
const KEY: &[u8] = b"key:000001";
const VALUE_BYTES: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rows::Kind;

    #[test]
    fn each_side_has_a_row_for_each_column_or_a_reason() {
        let samples = SIDES.map(|_| vec![[1.5, 200.0, 300.0, 100.0, 400.0, 70.0]; 5]);
        let rows = as_rows(&samples, None);
        assert_eq!(rows.len(), SIDES.len() * COLUMNS.len());
        let row = rows.iter().find(|row| row.id == "wire.unix.client_system").expect("it is there");
        assert_eq!((row.ours, row.kind), (Some(400.0), Kind::Measured));
        let without = as_rows(&SIDES.map(|_| Vec::new()), Some("one core"));
        assert!(without.iter().all(|row| row.reason.as_deref() == Some("one core")));
        assert!(without.iter().all(|row| row.kind == Kind::Unreachable));
    }
}
