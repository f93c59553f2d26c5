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
        let line = if line.contains(FILE_PREFIX) { without_file_name(&line) } else { line };
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

/// Returns a line without the name of the first file in it. Each run has files of its own, so their names differ.
fn without_file_name(line: &str) -> String {
    let line = line.replace(&*env::temp_dir().to_string_lossy(), "");
    let Some((before, rest)) = line.split_once(FILE_PREFIX) else { return line };
    let rest = rest.split_once('.').map_or(rest, |(_, rest)| rest);
    format!("{before}{rest}")
}

/// The start of the names of all files of a run. A point and the kind of the file end a name.
pub(crate) const FILE_PREFIX: &str = "rebate-simulation-";

/// The number of lines that are kept.
const LINES_KEPT: usize = 20_000;
