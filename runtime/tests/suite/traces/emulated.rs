//! Runs the programs T1 to T12 on emulated accelerators, and counts where each op ran.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{Device, Dialect, Virtual, VirtualOptions};
use policy::Placement;
use runtime::PathCount;
use runtime::trace::{Counted, Ran};
use units::{Nanos, Op, SystemClock};
use workload::DeviceProfile;

use crate::common::{config, software};
use crate::traces::rig::{Rig, with_runtime};
use crate::traces::templates::all;

/// The ops of all templates, by the place where they ran.
type Places = BTreeMap<&'static str, u64>;

/// Runs every template on software and these emulated accelerators. Every job is offered to an accelerator first.
/// Returns the number of ops by place, and the paths of their jobs.
fn run(profiles: &[&str], dialect: Dialect) -> (Places, Vec<PathCount>) {
    let emulated = profiles.iter().map(|name| {
        let profile = DeviceProfile::find(name).expect("compiled in");
        let device = Virtual::new(&profile, drivers::ENGINES, VirtualOptions::default());
        Arc::new(device.expect("its engines are there")) as Arc<dyn Device>
    });
    let devices = [software()].into_iter().chain(emulated).collect();
    let mut config = config(devices, Arc::new(SystemClock::new()));
    // No job times out on a busy machine.
    config.job_timeout = Nanos::secs(60);
    with_runtime(config, trace::accelflow(), |traces| traces.dialect = dialect, counted)
}

async fn counted(rig: Rig) -> (Places, Vec<PathCount>) {
    let (metrics, jobs) = (rig.traces.metrics(), rig.runtime.metrics());
    let counts = all(rig).await;
    println!("{:?}", jobs.chains());
    assert_eq!(counts.failed, 0);
    let mut places = Places::new();
    for what in Counted::all() {
        if let Counted::Step(_, ran) = what {
            *places.entry(ran.name()).or_default() += metrics.read(what);
        }
    }
    let software = metrics.read(Counted::Step(Op::Decompress, Ran::Software));
    let paths = jobs.paths();
    println!("{places:?}, {software} decompressions in software");
    (places, paths)
}

/// Returns the share of the ops that ran on a device, of those that are no ports of the service.
fn share_on_devices(places: &Places) -> f64 {
    let of = |place: Ran| places.get(place.name()).copied().unwrap_or(0);
    let ops = of(Ran::Device) + of(Ran::Software) + of(Ran::Kernel);
    of(Ran::Device) as f64 / ops as f64
}

#[test]
fn nine_of_ten_ops_of_the_templates_run_on_emulated_devices() {
    let plain = Dialect::new(device::Codec::Deflate);
    let (places, paths) = run(&["iaa", "qat-4xxx", "accelflow"], plain);
    let share = share_on_devices(&places);
    assert!(share >= 0.9, "{share}: {places:?}");
    for path in &paths {
        let is_software = path.device == "software";
        assert_eq!(path.placement == Placement::Software, is_software, "{path:?}");
        println!(
            "{} {} {} {}: {}",
            path.op,
            path.device,
            path.placement.name(),
            path.reason.name(),
            path.jobs
        );
    }
    for op in [Op::Serialize, Op::Deserialize, Op::Rpc, Op::LoadBalance] {
        let on_accelflow = paths.iter().filter(|path| path.device == "virtual-accelflow");
        let jobs: u64 = on_accelflow.filter(|path| path.op == op).map(|path| path.jobs).sum();
        assert!(jobs > 0, "{op} never ran on its accelerator");
    }
}

#[test]
fn the_accelerators_of_accelflow_run_every_op_alone() {
    let plain = Dialect::new(device::Codec::Deflate);
    let (places, _) = run(&["accelflow"], plain);
    assert_eq!(share_on_devices(&places), 1.0, "{places:?}");
}

/// The results and the counts of ops are the same with chains and without them, and only the trips differ.
#[test]
fn the_accelerators_of_accelflow_hand_payloads_over() {
    let run = |chains| {
        let profile = DeviceProfile::find("accelflow").expect("compiled in");
        let device = Virtual::new(&profile, drivers::ENGINES, VirtualOptions::default());
        let device: Arc<dyn Device> = Arc::new(device.expect("its engines are there"));
        let mut config = config(vec![software(), device], Arc::new(SystemClock::new()));
        config.job_timeout = Nanos::secs(60);
        config.chains = chains;
        with_runtime(
            config,
            trace::accelflow(),
            |_| {},
            |rig| async {
                let jobs = rig.runtime.metrics();
                let (places, _) = counted(rig).await;
                (places, jobs.chains().iter().map(|count| count.chains).sum::<u64>())
            },
        )
    };
    let (with, chains) = run(true);
    let (without, none) = run(false);
    assert_eq!(with, without);
    assert_eq!(none, 0);
    // Every message that is sent or received has at least two ops in a row.
    assert!(chains >= 20, "{chains}");
}

#[test]
fn iaa_reads_what_programs_write_within_its_window() {
    let (_, paths) = run(&["iaa"], Dialect::IAA);
    for op in [Op::Compress, Op::Decompress] {
        let jobs = |device: &str| {
            let here = paths.iter().filter(|path| path.op == op && path.device == device);
            here.map(|path| path.jobs).sum::<u64>()
        };
        assert!(jobs("virtual-iaa") > 0, "{op}: {paths:?}");
    }
}
