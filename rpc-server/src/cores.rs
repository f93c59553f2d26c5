//! Decides which threads a layout has and on which core each thread runs. This module starts no
//! thread and pins only the calling thread.

use std::fmt::{self, Display, Formatter};
use std::io;
use std::str::FromStr;

use rustix::thread::CpuSet;
pub use units::cores::allowed;

use super::RpcError;

/// The threads of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RpcLayout {
    /// One thread for sockets, engine and handlers.
    Inline,
    /// Two threads: one for sockets and engine, one for the handlers.
    TwoThread,
    /// Four threads: one for sockets, one for each half of the engine, one for the handlers.
    FourThread,
}

impl RpcLayout {
    /// All layouts, ordered by their number of threads.
    pub const ALL: [Self; 3] = [Self::Inline, Self::TwoThread, Self::FourThread];

    /// Returns the layout's name in flags and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::TwoThread => "two-thread",
            Self::FourThread => "four-thread",
        }
    }

    /// Returns the names of the layout's threads. The first is NetCore: the thread with the
    /// sockets, or the calling thread of a loopback.
    pub const fn threads(self) -> &'static [&'static str] {
        match self {
            Self::Inline => &["NetCore"],
            Self::TwoThread => &["NetCore", "AppCore"],
            Self::FourThread => &["NetCore", "RxEngine", "TxEngine", "AppCore"],
        }
    }
}

/// The cores on which the threads of a layout run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RpcCores {
    /// Each of two or more threads is pinned to a different core, starting with the first core that
    /// this process may use. A single thread is not pinned.
    #[default]
    Auto,
    /// The kernel chooses the cores.
    Any,
    /// The given cores, one for each thread.
    List(Vec<usize>),
}

/// The threads of a layout with their cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcPlacement {
    layout: RpcLayout,
    cores: Option<Vec<usize>>,
}

impl RpcCores {
    /// Returns the cores of `layout`'s threads on this machine.
    ///
    /// # Errors
    /// [`RpcError::BadOptions`] if there are fewer cores than threads, or if this process may not
    /// run on a named core.
    pub fn place(&self, layout: RpcLayout) -> Result<RpcPlacement, RpcError> {
        self.place_on(layout, &allowed()?)
    }

    fn place_on(&self, layout: RpcLayout, allowed: &[usize]) -> Result<RpcPlacement, RpcError> {
        let threads = layout.threads();
        let cores = match self {
            Self::Any => None,
            Self::Auto if threads.len() == 1 => None,
            Self::Auto if threads.len() > allowed.len() => {
                return Err(RpcError::BadOptions(format!(
                    "{}; this process may run on {} ({}): give it {}, choose a layout of at \
                     most {} threads, or name `any` to leave them unpinned",
                    wants(layout),
                    cores_of(allowed.len()),
                    ranges(allowed),
                    threads.len(),
                    allowed.len(),
                )));
            }
            Self::Auto => Some(allowed[..threads.len()].to_vec()),
            Self::List(cores) => Some(named(cores, layout, allowed)?),
        };
        Ok(RpcPlacement { layout, cores })
    }
}

fn named(cores: &[usize], layout: RpcLayout, allowed: &[usize]) -> Result<Vec<usize>, RpcError> {
    let refuse = |problem: String| Err(RpcError::BadOptions(problem));
    if cores.len() != layout.threads().len() {
        let count = cores_of(cores.len());
        let ranges_allowed = ranges(allowed);
        return refuse(format!("{}; {count} named, of {ranges_allowed}", wants(layout)));
    }
    let twice = cores.iter().enumerate().find(|(place, core)| cores[..*place].contains(core));
    if let Some((_, core)) = twice {
        return refuse(format!("core {core} is named twice; each thread has one to itself"));
    }
    if let Some(core) = cores.iter().find(|core| !allowed.contains(core)) {
        let ranges_allowed = ranges(allowed);
        return refuse(format!(
            "core {core} is none that this process may run on: {ranges_allowed}"
        ));
    }
    Ok(cores.to_vec())
}

fn wants(layout: RpcLayout) -> String {
    let threads = layout.threads();
    let plural = if threads.len() == 1 { "" } else { "s" };
    let each = if threads.len() == 1 { "its own core" } else { "each on a core of its own" };
    format!(
        "{} has {} thread{plural}, {each} ({})",
        layout.name(),
        threads.len(),
        threads.join(", ")
    )
}

fn cores_of(count: usize) -> String {
    if count == 1 { "1 core".to_owned() } else { format!("{count} cores") }
}

/// Formats core numbers as in `0-3,6`.
fn ranges(cores: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for core in cores {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *core => *last = *core,
            _ => parts.push((*core, *core)),
        }
    }
    let words =
        parts.iter().map(
            |(first, last)| {
                if first == last { first.to_string() } else { format!("{first}-{last}") }
            },
        );
    words.collect::<Vec<_>>().join(",")
}

impl FromStr for RpcCores {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let core = |text: &str| {
            let number = text.trim().parse::<usize>().ok().filter(|core| *core < CpuSet::MAX_CPU);
            number.ok_or_else(|| {
                let most = CpuSet::MAX_CPU - 1;
                format!("{text:?} is no core; write auto, any, or cores of 0 to {most} as in 0,2-4")
            })
        };
        match text {
            "auto" => return Ok(Self::Auto),
            "any" => return Ok(Self::Any),
            _ => {}
        }
        let mut cores = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            cores.extend(core(first)?..=core(last)?);
        }
        if cores.is_empty() {
            Err(format!("{text:?} names no core"))
        } else {
            Ok(Self::List(cores))
        }
    }
}

impl RpcPlacement {
    /// Returns the core of the thread with this index in the layout. Returns none if it is not pinned.
    pub fn core(&self, thread: usize) -> Option<usize> {
        self.cores.as_ref()?.get(thread).copied()
    }

    /// Returns all cores. Returns none if the threads are not pinned.
    pub fn cores(&self) -> Option<&[usize]> {
        self.cores.as_deref()
    }
}

impl Display for RpcPlacement {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}: ", self.layout.name())?;
        for (place, thread) in self.layout.threads().iter().enumerate() {
            out.write_str(if place == 0 { "" } else { ", " })?;
            match self.core(place) {
                Some(core) => write!(out, "{thread} on core {core}")?,
                None => out.write_str(thread)?,
            }
        }
        if self.cores.is_some() { Ok(()) } else { out.write_str(", on any core") }
    }
}

/// Pins the calling thread, and the threads that it starts later, to `core`. With `None` it pins
/// nothing.
pub(super) fn pin(core: Option<usize>) -> io::Result<()> {
    core.map_or(Ok(()), units::cores::pin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(cores: &RpcCores, layout: RpcLayout, allowed: &[usize]) -> String {
        cores.place_on(layout, allowed).expect_err("refused").to_string()
    }

    #[test]
    fn each_thread_gets_a_core_or_a_reason() {
        let auto = RpcCores::Auto;
        let placed = auto.place_on(RpcLayout::FourThread, &[1, 2, 5, 6, 7]).expect("enough");
        assert_eq!([0, 1, 2, 3].map(|thread| placed.core(thread)), [1, 2, 5, 6].map(Some));
        let words = placed.to_string();
        assert!(words.starts_with("four-thread: NetCore on core 1, RxEngine on core 2"), "{words}");
        let alone = auto.place_on(RpcLayout::Inline, &[1]).expect("left to the kernel");
        assert_eq!(
            (alone.core(0), alone.to_string().as_str()),
            (None, "inline: NetCore, on any core")
        );

        let words = refused(&auto, RpcLayout::FourThread, &[0, 1]);
        for part in ["4 threads", "2 cores (0-1)", "at most 2 threads", "`any`", "RxEngine"] {
            assert!(words.contains(part), "{part}: {words}");
        }
        let list = RpcCores::List;
        let words = refused(&list(vec![0]), RpcLayout::TwoThread, &[0, 1, 3]);
        assert!(words.contains("2 threads") && words.contains("1 core named, of 0-1,3"), "{words}");
        let words = refused(&list(vec![0, 9]), RpcLayout::TwoThread, &[0, 1]);
        assert!(words.contains("core 9") && words.contains("0-1"), "{words}");
        for allowed in [&[0, 1][..], &[0, 2]] {
            let words = refused(&list(vec![1, 1]), RpcLayout::TwoThread, allowed);
            assert!(words.contains("twice"), "what is wrong on any machine comes first: {words}");
        }
        let any = RpcCores::Any.place_on(RpcLayout::FourThread, &[0]).expect("not pinned");
        assert_eq!(any.cores(), None);
    }

    #[test]
    fn cores_are_read_as_they_are_written() {
        assert_eq!("auto".parse(), Ok(RpcCores::Auto));
        assert_eq!("any".parse(), Ok(RpcCores::Any));
        assert_eq!("0,2-4".parse(), Ok(RpcCores::List(vec![0, 2, 3, 4])));
        for bad in ["", "x", "1-", "3-2", "-1", "0,,1", "99999"] {
            let words = bad.parse::<RpcCores>().expect_err(bad);
            assert!(words.contains("core"), "{bad}: {words}");
        }
    }
}
