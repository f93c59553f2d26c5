//! Sends a mix of every workload of every service in process and compares each answer byte for byte with a model of the
//! store. Some packets are broken on purpose. They must be refused without harm to other packets.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use load::rpc::{Generator, MIXES, Mix, Recording};
use rpc_server::{Loopback, RpcCores, RpcError, RpcLayout, RpcOptions};
use serde::Serialize;
use units::{ByteCount, SystemClock};

use super::player::{Player, Tally};
use super::service;

/// What a soak sends, and to which layout.
#[derive(Clone, Debug)]
pub struct Soak {
    /// The number of requests, including those that fill the stores and those that are broken on purpose.
    pub requests: u64,
    /// The layout of the threads.
    pub layout: RpcLayout,
    /// The cores of the threads.
    pub cores: RpcCores,
    /// The number of requests in flight.
    pub window: usize,
    /// The seed of the random draws. The same seed gives the same requests.
    pub seed: u64,
}

/// The result of a soak.
#[derive(Clone, Debug, Serialize)]
pub struct Soaked {
    /// The name of the layout.
    pub layout: &'static str,
    /// The requests that were answered.
    pub requests: u64,
    /// The time that they took (s).
    pub seconds: f64,
    /// What the answers were.
    pub answers: Tally,
}

impl Soak {
    /// Sends the requests. Ends early after an answer that is not what it has to be.
    ///
    /// # Errors
    /// [`RpcError`] if an option is not valid, or the system refuses a thread or a core.
    ///
    /// # Panics
    /// If a thread of a service panics.
    pub fn run(&self) -> Result<Soaked, RpcError> {
        let begun = Instant::now();
        let mut answers = Tally::default();
        let services = rpc_services();
        for (place, (service, mixes)) in services.iter().enumerate() {
            // Each service gets a share of the requests in proportion to its workloads. The last service gets the rest.
            let share = match place + 1 == services.len() {
                true => self.requests - answers.right,
                false => self.requests * mixes.len() as u64 / MIXES.len() as u64,
            };
            // Each service gets a new thread, because the thread is pinned and the next service's thread may need
            // another core.
            let soaked = thread::scope(|scope| {
                scope.spawn(|| self.soak(service, mixes, share)).join().expect("it does not panic")
            });
            answers.add(&soaked?);
            if answers.bad() > 0 {
                break;
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        let requests = answers.right + answers.bad();
        Ok(Soaked { layout: self.layout.name(), requests, seconds, answers })
    }

    fn soak(&self, name: &str, mixes: &[Mix], requests: u64) -> Result<Tally, RpcError> {
        let options = RpcOptions {
            layout: self.layout,
            cores: self.cores.clone(),
            memory: ByteCount::mib(128),
            ..RpcOptions::new(service(name))
        };
        let mut loopback = Loopback::start(&options, Arc::new(SystemClock::new()))?;
        let mut player: Option<Player> = None;
        let mut left = requests;
        for (turn, mix) in (0..).zip(mixes.iter().cycle()) {
            if left == 0 {
                break;
            }
            let is_first = turn < mixes.len() as u64;
            let recording = Arc::new(chunk(mix, self.seed ^ (turn << 20), is_first, left));
            let player = match &mut player {
                Some(player) => {
                    player.change(Arc::clone(&recording));
                    player
                }
                none => none.insert(Player::new(Arc::clone(&recording), true)),
            };
            let frames = recording.frames() as u64;
            player.send(frames);
            loopback.replay(self.window, player)?;
            player.took_ns.clear();
            left -= frames;
        }
        Ok(player.map(|player| player.tally).unwrap_or_default())
    }
}

/// Returns the services with their workloads. The workloads' keys are disjoint.
fn rpc_services() -> Vec<(&'static str, Vec<Mix>)> {
    let mut services: Vec<(&'static str, Vec<Mix>)> = Vec::new();
    for (number, name) in (0..).zip(MIXES) {
        let mix = Mix::named(name).expect("a name of the table");
        let mix = Mix { keys: KEYS, first_key: number * KEYS, ..mix };
        match services.iter_mut().find(|(service, _)| *service == mix.service()) {
            Some((_, mixes)) => mixes.push(mix),
            None => services.push((mix.service(), vec![mix])),
        }
    }
    services
}

/// Returns the next requests of a mix, at most `most`. The first chunk begins with the requests that fill the store.
fn chunk(mix: &Mix, seed: u64, is_first: bool, most: u64) -> Recording {
    let mut recording = Recording::new(mix.service()).expect("a mix is of a service");
    let mut generator = Generator::new(mix, seed);
    let mut frame = Vec::new();
    let most = most.min(CHUNK) as usize;
    while is_first && recording.frames() < most && generator.warm(&mut frame) {
        recording.push(&frame);
    }
    while recording.frames() < most {
        generator.request(&mut frame);
        if recording.frames() % BROKEN_EVERY == BROKEN_EVERY - 1 {
            break_frame(&mut frame, recording.frames() / BROKEN_EVERY);
        }
        recording.push(&frame);
    }
    recording
}

/// Breaks a packet so that it must be refused: a wrong function, a missing last byte or a wrong kind.
fn break_frame(frame: &mut Vec<u8>, how: usize) {
    match how % 3 {
        0 => frame[FUNCTION_AT] = b'~',
        1 => {
            frame.pop();
            let length = (frame.len() - FRAME_HEAD_BYTES) as u32;
            frame[..FRAME_HEAD_BYTES].copy_from_slice(&length.to_be_bytes());
        }
        _ => frame[KIND_AT] = 9,
    }
}

/// The size of the length field at the start of a frame (bytes). The version, the name's length and the name
/// follow. The version's last byte is the kind of the message.
const FRAME_HEAD_BYTES: usize = 4;
const KIND_AT: usize = 7;
const FUNCTION_AT: usize = 12;
/// The number of requests that are generated at a time. It limits the memory for them.
const CHUNK: u64 = 20_000;
const KEYS: u64 = 2_000;
const BROKEN_EVERY: usize = 89;

#[cfg(test)]
mod tests {
    use super::*;

    fn soaked(layout: RpcLayout, requests: u64) -> Tally {
        let cores = RpcCores::Any;
        let soak = Soak { requests, layout, cores, window: 16, seed: 1 };
        let mut answers = Tally::default();
        for (service, mixes) in rpc_services() {
            answers.add(&soak.soak(service, &mixes, requests / 3).expect("it runs"));
        }
        answers
    }

    #[test]
    fn every_layout_answers_right_and_refuses_broken_packets() {
        for layout in [RpcLayout::Inline, RpcLayout::TwoThread, RpcLayout::FourThread] {
            let answers = soaked(layout, 21_000);
            let Tally { right, refused_rightly, misses, refused, wrong } = answers;
            assert_eq!((right, misses, refused, wrong), (21_000, 0, 0, 0), "{layout:?}");
            assert!(refused_rightly > 100, "{layout:?}: {refused_rightly}");
        }
    }
}
