//! What happened in a run, line by line with its time. Two runs of one seed have the same trace.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::{env, fmt};

use parking_lot::Mutex;
use tokio::time::Instant;

/// The last lines of a run, and a digest of all lines. Clones share them.
#[derive(Clone)]
pub struct Trace(Arc<Mutex<Lines>>);

struct Lines {
    start: Instant,
    last: VecDeque<String>,
    digest: DefaultHasher,
    count: u64,
}

impl Trace {
    /// Starts a trace, whose time starts now.
    pub fn start() -> Self {
        Self(Arc::new(Mutex::new(Lines {
            start: Instant::now(),
            last: VecDeque::new(),
            // Its keys are constant.
            digest: DefaultHasher::new(),
            count: 0,
        })))
    }

    /// Adds a line.
    pub fn note(&self, what: fmt::Arguments<'_>) {
        let mut lines = self.0.lock();
        let line = format!("{:>9.3} s  {what}", lines.start.elapsed().as_secs_f64());
        // Each run has files of its own, so their names differ.
        let line = line.replace(&*env::temp_dir().to_string_lossy(), "");
        let line = match line.split_once(FILE_PREFIX) {
            Some((before, rest)) => {
                let rest = rest.split_once('.').map_or(rest, |(_, rest)| rest);
                format!("{before}{rest}")
            }
            None => line,
        };
        line.hash(&mut lines.digest);
        lines.count += 1;
        if lines.last.len() == LINES_KEPT {
            lines.last.pop_front();
        }
        lines.last.push_back(line);
    }

    /// Returns a digest of all lines.
    pub fn digest(&self) -> u64 {
        self.0.lock().digest.finish()
    }

    /// Returns the last lines.
    pub fn last_lines(&self) -> Vec<String> {
        self.0.lock().last.iter().cloned().collect()
    }
}

/// The begin of the names of all files of a run. A point and what the file has follow.
pub(crate) const FILE_PREFIX: &str = "rebate-simulation-";

/// The number of lines that are kept.
const LINES_KEPT: usize = 20_000;
