//! Times requests on servers in this process: one that compresses and one that does not get the same values, over Unix
//! sockets that nobody else can open. The time is that of the worker thread, so it is what the server itself takes on
//! this machine, and neither the client here nor other processes count.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use device::Software;
use planner::estimate::{AddedTime, RequestTimer, Requests};
use server::config::{CompressMode, Config};
use server::{Devices, Server, ServerHandle};
use units::ByteCount;

/// The servers. They start when they are first needed.
pub struct Timer {
    /// Prefixes of keys that are classes.
    prefixes: Vec<String>,
    servers: Option<Servers>,
}

struct Servers {
    uncompressed: Running,
    plain: Running,
    with_dictionary: Running,
}

/// A server, and the connection to it.
struct Running {
    handle: ServerHandle,
    stream: UnixStream,
    /// The file that has the time of the worker thread.
    worker: PathBuf,
}

/// The CPU time of some requests (ns for each).
#[derive(Clone, Copy)]
struct Times {
    set_ns: f64,
    get_ns: f64,
}

impl Timer {
    /// Prepares servers with these prefixes of keys that are classes.
    pub fn new(prefixes: Vec<String>) -> Self {
        Self { prefixes, servers: None }
    }
}

impl RequestTimer for Timer {
    fn added(&mut self, requests: &Requests<'_>) -> Result<AddedTime, String> {
        if self.servers.is_none() {
            self.servers = Some(Servers::start(&self.prefixes)?);
        }
        let Some(servers) = &mut self.servers else { return Err("no server".to_owned()) };
        servers.added(requests).map_err(|error| error.to_string())
    }
}

impl Servers {
    fn start(prefixes: &[String]) -> Result<Self, String> {
        // As in a server: requests allocate and free values and messages.
        let _ = drivers::heap::keep_large_blocks();
        Ok(Self {
            uncompressed: Running::start(CompressMode::Off, false, prefixes)?,
            plain: Running::start(CompressMode::On, false, prefixes)?,
            with_dictionary: Running::start(CompressMode::On, true, prefixes)?,
        })
    }

    /// Returns the medians of what compression adds in several rounds. The first round is not counted, because memory
    /// is new then.
    fn added(&mut self, requests: &Requests<'_>) -> io::Result<AddedTime> {
        let items = requests.items;
        let compressed = match &requests.dictionary {
            None => &mut self.plain,
            Some(dictionary) => {
                for (key, _) in items {
                    if !self.with_dictionary.handle.fix_dictionary(key, Some(dictionary)) {
                        return Err(io::Error::other("there is no memory for a dictionary"));
                    }
                }
                &mut self.with_dictionary
            }
        };
        let (mut sets, mut gets) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let without = self.uncompressed.round(items)?;
            let with = compressed.round(items)?;
            if round > 0 {
                sets.push(with.set_ns - without.set_ns);
                gets.push(with.get_ns - without.get_ns);
            }
        }
        if requests.dictionary.is_some() {
            for (key, _) in items {
                self.with_dictionary.handle.fix_dictionary(key, None);
            }
        }
        Ok(AddedTime { set_ns: median(sets), get_ns: median(gets) })
    }
}

impl Running {
    fn start(mode: CompressMode, dictionaries: bool, prefixes: &[String]) -> Result<Self, String> {
        // Of two servers that start at once, each could take the other's worker for its own.
        static STARTING: Mutex<()> = Mutex::new(());
        let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |error: io::Error| error.to_string();
        let folder = tempfile::tempdir().map_err(failed)?;
        let socket = folder.path().join("socket");
        let mut config = Config::default();
        (config.server.listen, config.server.unix_socket) = (Vec::new(), Some(socket.clone()));
        config.server.threads = 1;
        config.store.memory = MEMORY;
        config.compress.mode = mode;
        // The store here is nearly empty. The estimate is about a full one, where small savings count, too.
        config.compress.saving_min_spare = 0.0;
        config.values.dictionaries = dictionaries;
        config.values.classes = prefixes.to_vec();
        // Each read decompresses. How many do not, in a server with hot values, depends on the popularity of keys.
        config.values.hot_share = 0.0;
        let others = workers().map_err(failed)?;
        let software = Arc::new(Software::new(drivers::ENGINES));
        let devices = Devices { all: vec![software], accelerators: 0 };
        let handle = Server::start(config, devices).map_err(|error| error.to_string())?;
        let is_new = |worker: &PathBuf| !others.contains(worker);
        let worker = workers().map_err(failed)?.into_iter().find(is_new);
        let worker = worker.ok_or_else(|| "the worker thread is not found in /proc".to_owned())?;
        let stream = UnixStream::connect(&socket).map_err(failed)?;
        stream.set_read_timeout(Some(ANSWER_MAX)).map_err(failed)?;
        stream.set_write_timeout(Some(ANSWER_MAX)).map_err(failed)?;
        // The connection stays when the folder with the socket's file is removed here.
        Ok(Self { handle, stream, worker: worker.join("schedstat") })
    }

    /// Sets all items, and gets them in another order.
    fn round(&mut self, items: &[(&[u8], &[u8])]) -> io::Result<Times> {
        let bytes: usize = items.iter().map(|(_, value)| value.len()).sum();
        let passes =
            REQUESTS_MIN.div_ceil(items.len().max(1)).min(ROUND_BYTES / bytes.max(1)).max(1);
        let start_ns = self.cpu_ns()?;
        for _ in 0..passes {
            self.exchange(items.iter().copied(), |out, answer, key, value| {
                let length = value.len();
                out.extend_from_slice(&[b"set ", key].concat());
                out.extend_from_slice(format!(" 0 0 {length}\r\n").as_bytes());
                out.extend_from_slice(&[value, b"\r\n"].concat());
                answer.extend_from_slice(b"STORED\r\n");
            })?;
        }
        let set_ns = self.cpu_ns()? - start_ns;
        let start_ns = self.cpu_ns()?;
        for _ in 0..passes {
            let count = items.len();
            let stride = stride(count);
            let shuffled = (0..count).map(|at| items[at * stride % count]);
            self.exchange(shuffled, |out, answer, key, value| {
                out.extend_from_slice(&[b"get ", key, b"\r\n"].concat());
                let length = value.len();
                answer.extend_from_slice(&[b"VALUE ", key].concat());
                answer.extend_from_slice(format!(" 0 {length}\r\n").as_bytes());
                answer.extend_from_slice(&[value, b"\r\nEND\r\n"].concat());
            })?;
        }
        let get_ns = self.cpu_ns()? - start_ns;
        let each = |sum: u64| sum as f64 / (passes * items.len()) as f64;
        Ok(Times { set_ns: each(set_ns), get_ns: each(get_ns) })
    }

    /// Sends requests in small batches, and compares the answers with the expected ones. `compose` appends a request
    /// and its answer.
    fn exchange<'a>(
        &mut self,
        items: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        compose: impl Fn(&mut Vec<u8>, &mut Vec<u8>, &[u8], &[u8]),
    ) -> io::Result<()> {
        let (mut out, mut expected, mut received) = (Vec::new(), Vec::new(), Vec::new());
        let mut count = 0;
        let mut items = items.peekable();
        while let Some((key, value)) = items.next() {
            compose(&mut out, &mut expected, key, value);
            count += 1;
            let is_full = count == BATCH || out.len().max(expected.len()) > BATCH_BYTES;
            if !is_full && items.peek().is_some() {
                continue;
            }
            self.stream.write_all(&out)?;
            received.resize(expected.len(), 0);
            self.stream.read_exact(&mut received)?;
            if received != expected {
                return Err(io::Error::other("a server in this process answers something else"));
            }
            out.clear();
            expected.clear();
            count = 0;
        }
        Ok(())
    }

    /// Returns the CPU time of the worker thread (ns), once it waits for requests.
    fn cpu_ns(&self) -> io::Result<u64> {
        let mut before = self.scheduled_ns()?;
        for _ in 0..SETTLING_MAX {
            thread::sleep(SETTLING);
            let now = self.scheduled_ns()?;
            if now == before {
                break;
            }
            before = now;
        }
        Ok(before)
    }

    fn scheduled_ns(&self) -> io::Result<u64> {
        let text = fs::read_to_string(&self.worker)?;
        let first = text.split_ascii_whitespace().next().and_then(|word| word.parse().ok());
        let missing = || io::Error::other("the system does not tell how long a thread ran");
        first.filter(|ns| *ns > 0).ok_or_else(missing)
    }
}

/// Returns the folders of this process's worker threads in /proc.
fn workers() -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/task")? {
        let path = entry?.path();
        // A thread may end meanwhile.
        let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
        if name.starts_with("rebate-worker") {
            found.push(path);
        }
    }
    Ok(found)
}

/// Returns a step that visits all of `count` places, with each far from the one before.
fn stride(count: usize) -> usize {
    let gcd = |mut a: usize, mut b: usize| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let start = (count as f64 * 0.618) as usize;
    (start.max(1)..).find(|step| gcd(*step, count) == 1).unwrap_or(1)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The rounds that count.
const ROUNDS: usize = 5;

/// The fewest requests of one kind in a round, unless their values have this many bytes.
const REQUESTS_MIN: usize = 500;
const ROUND_BYTES: usize = 8 << 20;

/// The most requests that are sent at once, and the bytes after which no more are added.
const BATCH: usize = 20;
const BATCH_BYTES: usize = 128 << 10;

/// The memory of each server. It is taken as it is needed.
const MEMORY: ByteCount = ByteCount::mib(256);

/// The longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The time between two looks at a worker that may still run, and their number.
const SETTLING: Duration = Duration::from_micros(100);
const SETTLING_MAX: usize = 50;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use device::Dictionary;

    use super::*;

    fn records(count: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let record = |n: usize| {
            let id = n.wrapping_mul(2_654_435_761) % 1_000_000_007;
            let value = format!(
                r#"{{"id":{id},"type":"invoice","user":{{"id":{n},"plan":"team"}},"paid":true}}"#
            );
            (format!("user:{n}").into_bytes(), value.into_bytes())
        };
        (0..count).map(record).collect()
    }

    fn added(records: &[(Vec<u8>, Vec<u8>)], dictionary: Option<Arc<Dictionary>>) -> AddedTime {
        let items: Vec<(&[u8], &[u8])> =
            records.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).collect();
        let mut timer = Timer::new(Vec::new());
        timer.added(&Requests { items: &items, dictionary }).unwrap()
    }

    #[test]
    fn a_dictionary_adds_time_to_every_request() {
        let records = records(400);
        let values: Vec<&[u8]> = records.iter().map(|(_, value)| value.as_slice()).collect();
        let dictionary = Dictionary::train(&values, 4 << 10).unwrap();
        let added = added(&records, Some(Arc::new(dictionary)));
        assert!(added.set_ns > 100.0 && added.get_ns > 100.0, "{added:?}");
    }

    #[test]
    fn one_long_value_is_timed() {
        // Text that repeats less than sentences do, so that compression takes much longer than a copy.
        let text: String = (0..40_000_u32).map(|n| format!("{:x} ", n.wrapping_mul(n))).collect();
        let added = added(&[(b"page".to_vec(), text.into_bytes())], None);
        assert!(added.set_ns > 1_000.0, "{added:?}");
    }

    #[test]
    fn values_that_save_a_quarter_are_stored_compressed_as_in_a_full_store() {
        let mut bits = 1_u64;
        let mut letter = || {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[bits as usize % 64]
        };
        let values: Vec<Vec<u8>> =
            (0..200).map(|_| (0..4_000).map(|_| letter()).collect()).collect();
        let keys: Vec<String> = (0..200).map(|n| format!("key:{n}")).collect();
        let items: Vec<(&[u8], &[u8])> =
            keys.iter().map(String::as_bytes).zip(values.iter().map(Vec::as_slice)).collect();
        let mut server = Running::start(CompressMode::On, false, &[]).unwrap();
        server.round(&items).unwrap();
        let (bytes, sum) = (server.stored_bytes(), 200 * 4_000);
        assert!(bytes < sum / 10 * 9, "{bytes} of {sum} bytes");
    }

    impl Running {
        fn stored_bytes(&mut self) -> usize {
            self.stream.write_all(b"stats\r\n").unwrap();
            let mut text = Vec::new();
            while !text.ends_with(b"END\r\n") {
                let mut some = [0; 4_096];
                let count = self.stream.read(&mut some).unwrap();
                assert!(count > 0, "the server ends the connection");
                text.extend_from_slice(&some[..count]);
            }
            let text = String::from_utf8(text).unwrap();
            let bytes = text.lines().find_map(|line| line.strip_prefix("STAT bytes ")).unwrap();
            bytes.parse().unwrap()
        }
    }

    #[test]
    fn a_stride_visits_every_place() {
        for count in [1, 2, 3, 10, 499, 500] {
            let mut seen = vec![false; count];
            (0..count).for_each(|at| seen[at * stride(count) % count] = true);
            assert!(seen.iter().all(|seen| *seen), "{count}");
        }
    }
}
