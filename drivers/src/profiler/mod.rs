//! Profiles the CPU time of this process: which functions ran, and who called them. Nothing of it runs until somebody
//! asks for a profile.
//!
//! Each thread gets a timer of its own CPU time. When it fires, a signal handler copies the registers and the top of
//! the stack into a socket, which is all that a handler may safely do. The thread that asked reads them, finds the
//! callers with the unwind tables of the program and its libraries, and names the functions at the end.

mod encode;
mod modules;
mod sampler;
mod stacks;
mod symbols;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use encode::Recorded;
use modules::Modules;
use sampler::Sampler;
use stacks::Stacks;

/// Samples all threads but this one for a time, and returns the profile in the format of pprof, not compressed. The
/// addresses in it are those of the files, so they do not tell where this process has its memory. If `is_cancelled`
/// becomes true, it ends early.
///
/// # Errors
/// Another profile is running (`ResourceBusy`), or the system refuses timers, sockets or a look at this process.
pub fn profile(length: Duration, is_cancelled: &AtomicBool) -> io::Result<Vec<u8>> {
    static RUNNING: Mutex<()> = Mutex::new(());
    let Some(_running) = RUNNING.try_lock() else {
        return Err(io::ErrorKind::ResourceBusy.into());
    };
    let modules = Modules::of_this_process()?;
    let started = SystemTime::now();
    let (stacks, length) = sample(&modules, length, is_cancelled)?;
    Ok(encode::profile(&modules, &stacks, &Recorded { started, length, period: PERIOD }))
}

fn sample(
    modules: &Modules,
    length: Duration,
    is_cancelled: &AtomicBool,
) -> io::Result<(Stacks, Duration)> {
    let mut stacks = Stacks::new(modules);
    let mut sampler = Sampler::start(PERIOD)?;
    let begin = Instant::now();
    let mut looked = begin;
    while begin.elapsed() < length && !is_cancelled.load(Ordering::Relaxed) {
        if looked.elapsed() >= LOOK {
            sampler.add_new_threads();
            looked = Instant::now();
        }
        if let Some(sample) = sampler.next(WAIT)? {
            stacks.add(&sample);
        }
    }
    sampler.stop();
    while let Some(sample) = sampler.next(Duration::ZERO)? {
        stacks.add(&sample);
    }
    stacks.lost = sampler.lost();
    Ok((stacks, begin.elapsed()))
}

/// The CPU time of a thread from one sample to the next. It is no multiple of the tick of usual kernels (4 ms), so that
/// work that is done at every tick is not always or never seen.
const PERIOD: Duration = Duration::from_micros(9_900);

/// The longest wait for a sample, so that a cancelled profile ends soon.
const WAIT: Duration = Duration::from_millis(100);

/// The time between two looks for threads that are new.
const LOOK: Duration = Duration::from_millis(250);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
