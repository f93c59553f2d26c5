//! Measures the cost of a hop between two cores. One measurement uses the mailbox as the layouts
//! do. The other passes a cache line back and forth, which is the least cost that the machine
//! allows. Each result is a mean over many hops. The caller computes medians over runs.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use drivers::mailbox::Receiver;
use rpc::{Address, Command};

use super::cores::pin;
use super::mailbox::{Doorbell, Mail, back_off, mailbox};

/// Returns the mean time of a round trip of a number between two threads through one cache line
/// (ns). No other round trip between the two cores is faster.
///
/// # Errors
/// Fails if this process may not run on one of the cores.
pub fn cache_line_round_trip(hops: u64, cores: [usize; 2]) -> io::Result<f64> {
    let line = CacheLine::default();
    let wait = |value| {
        let mut idle = 0;
        while line.0.load(Ordering::Acquire) != value {
            idle += 1;
            back_off(idle);
        }
    };
    between(
        cores,
        || {
            for hop in 0..hops {
                wait(2 * hop + 1);
                line.0.store(2 * hop + 2, Ordering::Release);
            }
        },
        || {
            let begun = Instant::now();
            for hop in 0..hops {
                line.0.store(2 * hop + 1, Ordering::Release);
                wait(2 * hop + 2);
            }
            per(begun, hops)
        },
    )
}

/// Returns the mean time of a round trip of a word and a buffer through two mailboxes with
/// doorbells, as between NetCore and AppCore (ns).
///
/// # Errors
/// Fails if this process may not run on one of the cores.
pub fn mailbox_round_trip(hops: u64, cores: [usize; 2]) -> io::Result<f64> {
    // No thread sleeps here. The doorbells are checked as they are between the threads of a layout.
    let doorbells = [(); 2].map(|()| Arc::new(Doorbell::default()));
    let (mut out, mut inbox) = mailbox::<Mail>(4, Some(&doorbells[0]));
    let (mut back, mut returned) = mailbox::<Mail>(4, Some(&doorbells[1]));
    let mut mail = Some((Address::default(), vec![0; 64].into_boxed_slice()));
    between(
        cores,
        move || {
            for _ in 0..hops {
                back.send(received(&mut inbox));
            }
        },
        move || {
            let begun = Instant::now();
            for _ in 0..hops {
                let word = Command::AppReadyFlag(Address::default());
                out.send(Mail { word, buffer: mail.take() });
                mail = received(&mut returned).buffer;
            }
            per(begun, hops)
        },
    )
}

fn received(inbox: &mut Receiver<Mail>) -> Mail {
    let mut idle = 0;
    loop {
        match inbox.pop() {
            Some(mail) => return mail,
            None => {
                idle += 1;
                back_off(idle);
            }
        }
    }
}

/// Runs `near` on the first core and `far` on the second, each on a new thread. `near` does the
/// measurement.
fn between(
    [here, there]: [usize; 2],
    far: impl FnOnce() + Send,
    near: impl FnOnce() -> f64 + Send,
) -> io::Result<f64> {
    // Both threads wait until both are pinned. If one thread cannot be pinned, neither begins,
    // because the other would wait for it forever.
    let (met, pinned) = (Barrier::new(2), AtomicU64::new(0));
    let ready = |core| {
        let result = pin(Some(core));
        pinned.fetch_add(u64::from(result.is_ok()), Ordering::SeqCst);
        met.wait();
        result.map(|()| pinned.load(Ordering::SeqCst) == 2)
    };
    thread::scope(|scope| {
        let far = scope.spawn(|| {
            ready(there).map(|both| {
                if both {
                    far()
                }
            })
        });
        let near = scope.spawn(|| ready(here).map(|both| if both { near() } else { 0.0 }));
        far.join().expect("it does not panic")?;
        near.join().expect("it does not panic")
    })
}

fn per(begun: Instant, hops: u64) -> f64 {
    begun.elapsed().as_secs_f64() * 1e9 / hops.max(1) as f64
}

/// A number that occupies a cache line alone.
#[repr(align(128))]
#[derive(Default)]
struct CacheLine(AtomicU64);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allowed_cores;

    #[test]
    fn hops_between_two_cores_take_time() {
        let none = rustix::thread::CpuSet::MAX_CPU - 1;
        assert!(cache_line_round_trip(1, [none, none]).is_err());
        let cores = allowed_cores().expect("told");
        let [here, there, ..] = cores[..] else { return };
        assert!(mailbox_round_trip(1, [here, none]).is_err());
        assert!(cache_line_round_trip(50, [here, there]).is_ok_and(|ns| ns > 0.0));
        assert!(mailbox_round_trip(50, [here, there]).is_ok_and(|ns| ns > 0.0));
    }
}
