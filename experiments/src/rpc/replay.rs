//! Sends recorded packets through layouts in process. All compared layouts get the same number of cores, so several
//! copies of a layout with fewer threads run at the same time. The runs of the layouts alternate, and the medians are
//! reported.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use load::rpc::Recording;
use rpc_server::{
    Loopback, RpcCores, RpcError, RpcLayout, RpcOptions, RpcPlacement, WINDOW,
    cache_line_round_trip, mailbox_round_trip,
};
use units::{ByteCount, SystemClock};

use super::player::{Player, Tally};
use super::rows::{HopRow, LayoutRow, Replayed};
use super::service;

/// The recording to replay, and the settings of the replay.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The packets.
    pub recording: Arc<Recording>,
    /// The layouts to compare.
    pub layouts: Vec<RpcLayout>,
    /// The cores of the threads of the largest layout.
    pub cores: RpcCores,
    /// The number of requests in flight.
    pub window: usize,
    /// The number of requests per run and copy.
    pub requests: u64,
    /// The number of runs of each layout.
    pub runs: usize,
    /// Whether every answer is compared with a model of the store.
    pub check: bool,
    /// The memory of each copy's store.
    pub memory: ByteCount,
    /// The greatest length of a request or an answer.
    pub message_bytes_max: ByteCount,
}

impl Plan {
    /// Creates a plan that replays a recording five times through each layout.
    pub fn new(recording: Arc<Recording>, layouts: Vec<RpcLayout>) -> Self {
        Self {
            recording,
            layouts,
            cores: RpcCores::Auto,
            window: *WINDOW.end(),
            requests: 200_000,
            runs: 5,
            check: false,
            memory: ByteCount::mib(64),
            message_bytes_max: ByteCount::mib(1),
        }
    }

    fn options(&self, layout: RpcLayout, cores: RpcCores) -> RpcOptions {
        RpcOptions {
            layout,
            cores,
            memory: self.memory,
            message_bytes_max: self.message_bytes_max,
            // The hash seed is fixed so that runs repeat. This is safe because the keys are our own.
            hash_seed: Some(HASH_SEED),
            ..RpcOptions::new(service(self.recording.service()))
        }
    }
}

/// Replays the recording. The runs of the layouts alternate.
///
/// # Errors
/// [`RpcError`] if the plan has no layout, an option is not valid, or the system refuses a thread or a core.
pub fn run(plan: &Plan) -> Result<Replayed, RpcError> {
    let largest = plan.layouts.iter().max_by_key(|layout| layout.threads().len());
    let largest =
        *largest.ok_or_else(|| RpcError::BadOptions("no layout to replay with".to_owned()))?;
    let placement = plan.cores.place(largest)?;
    let threads = largest.threads().len();
    let pair = placement.cores().and_then(|cores| cores.first_chunk::<2>()).copied();
    let pinned = placement.cores().is_some();
    let row = |layout: &RpcLayout| LayoutRow::new(*layout, threads, pinned, plan.runs);
    let mut layouts: Vec<_> = plan.layouts.iter().map(row).collect();
    let mut hops = pair.map(|cores| [HopRow::floor(cores), HopRow::mailbox(cores)]);
    for _ in 0..plan.runs {
        for row in &mut layouts {
            let copies = copies(plan, row.layout, &placement, threads);
            row.add(&once(plan, &copies)?);
        }
        if let Some((cores, [floor, mailbox])) = pair.zip(hops.as_mut()) {
            floor.add(cache_line_round_trip(HOPS, cores)?);
            mailbox.add(mailbox_round_trip(HOPS, cores)?);
        }
    }
    layouts.iter_mut().for_each(LayoutRow::sort);
    let hops = hops.into_iter().flatten().map(HopRow::sorted).collect();
    Ok(Replayed::new(plan, layouts, hops))
}

/// Returns the options of the copies of a layout, as many copies as the cores of the largest layout can hold.
fn copies(
    plan: &Plan,
    layout: RpcLayout,
    placement: &RpcPlacement,
    threads: usize,
) -> Vec<RpcOptions> {
    let threads_each = layout.threads().len();
    let cores = |copy: usize| match placement.cores() {
        Some(cores) => {
            RpcCores::List(cores[copy * threads_each..(copy + 1) * threads_each].to_vec())
        }
        None => RpcCores::Any,
    };
    (0..threads / threads_each).map(|copy| plan.options(layout, cores(copy))).collect()
}

/// The results of copies that ran at the same time.
pub(super) struct Run {
    pub(super) requests_per_second: f64,
    pub(super) ns_per_request: f64,
    pub(super) took_ns: Vec<u32>,
    pub(super) tally: Tally,
}

/// Runs all copies once. Each copy has a thread, which is its NetCore.
fn once(plan: &Plan, copies: &[RpcOptions]) -> Result<Run, RpcError> {
    let met = Barrier::new(copies.len());
    let runs = thread::scope(|scope| {
        let copies: Vec<_> =
            copies.iter().map(|options| scope.spawn(|| one(plan, options, &met))).collect();
        let joined = copies.into_iter().map(|copy| copy.join().expect("a copy does not panic"));
        joined.collect::<Result<Vec<_>, RpcError>>()
    });
    let runs = runs?;
    let mut sum = Run {
        requests_per_second: rate(plan.requests, runs.iter().map(|(_, times)| *times)),
        ns_per_request: 0.0,
        took_ns: Vec::new(),
        tally: Tally::default(),
    };
    let copies = runs.len() as f64;
    for (player, [begun, ended]) in runs {
        let took_ns = (ended - begun).as_nanos() as f64;
        sum.ns_per_request += took_ns / plan.requests as f64 / copies;
        sum.took_ns.extend(player.took_ns);
        sum.tally.add(&player.tally);
    }
    Ok(sum)
}

/// Returns the total rate (1/s) of copies with `requests` requests each, from the first copy's start to the
/// last copy's end. The rates of the copies do not add up, because a copy that continues alone is faster.
fn rate(requests: u64, times: impl Iterator<Item = [Instant; 2]> + Clone) -> f64 {
    let begun = times.clone().map(|[begun, _]| begun).min();
    let ended = times.clone().map(|[_, ended]| ended).max();
    let took = begun.zip(ended).map_or(0.0, |(begun, ended)| (ended - begun).as_secs_f64());
    (requests as f64 * times.count() as f64) / took.max(1e-9)
}

/// Runs one copy: fills the store, waits for the other copies, and replays. Returns the times at which the replay began
/// and ended.
fn one(
    plan: &Plan,
    options: &RpcOptions,
    met: &Barrier,
) -> Result<(Player, [Instant; 2]), RpcError> {
    let mut player = Player::new(Arc::clone(&plan.recording), plan.check);
    let filled = filled(plan, options, &mut player);
    // The other copies wait for this one even if it failed to fill its store.
    met.wait();
    let mut loopback = filled?;
    player.took_ns.clear();
    player.send(plan.requests);
    let begun = Instant::now();
    loopback.replay(plan.window, &mut player)?;
    Ok((player, [begun, Instant::now()]))
}

fn filled(plan: &Plan, options: &RpcOptions, player: &mut Player) -> Result<Loopback, RpcError> {
    let mut loopback = Loopback::start(options, Arc::new(SystemClock::new()))?;
    player.send(plan.recording.warm() as u64);
    loopback.replay(plan.window, player)?;
    Ok(loopback)
}

/// The number of round trips in one measurement of a hop. They take some tens of milliseconds.
const HOPS: u64 = 100_000;
const HASH_SEED: u64 = 1;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_rate_of_copies_is_over_all_of_their_time() {
        let at = |begin: Instant, ms| begin + Duration::from_millis(ms);
        let begin = Instant::now();
        let times = [[begin, at(begin, 500)], [at(begin, 10), at(begin, 1_000)]];
        let rate = rate(1_000, times.into_iter());
        assert!((rate - 2_000.0).abs() < 1e-6, "{rate}");
    }
}
