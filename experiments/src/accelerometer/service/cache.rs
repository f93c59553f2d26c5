//! The service's part of a request. A set is compressed, checked, encrypted and stored; a get does the reverse. The
//! caller runs compression and decompression as jobs, so this module begins a request, and finishes it when its job is
//! done.

use std::sync::Arc;

use bytes::Bytes;
use device::{Completion, Dialect, Input, Job, Level, Outcome, Pool, Task};
use protocol::reply::{self, Reply};
use protocol::{Command, Limits, Parse};
use store::embedded::{Embedded, Fetch, Mode, NewItem};
use units::ByteCount;

use crate::accelerometer::service::checksum::Checksum;
use crate::accelerometer::service::cipher::{Cipher, NONCE_BYTES, TAG_BYTES};
use crate::accelerometer::service::request::{COMPRESSED, ENCRYPTED};
use crate::accelerometer::service::watch::{Stage, Watch};

/// The implementations of encryption and checksums, which are not jobs.
pub(crate) struct Ops {
    /// The cipher of encryption.
    pub(crate) cipher: Cipher,
    /// The implementation of checksums.
    pub(crate) checksum: Checksum,
}

/// The service of one thread, over a store that may be shared.
pub(crate) struct Service {
    store: Arc<Embedded>,
    ops: Ops,
    pool: Pool,
    nonce: u64,
    reply: Vec<u8>,
}

/// The state of a request after a step.
pub(crate) enum Step {
    /// The request is answered.
    Done,
    /// The request continues after this job.
    Job(Box<Job>, Pending),
}

/// A request that waits for its job, with the data that its reply needs.
pub(crate) enum Pending {
    /// A get, with the key and the flags of the reply.
    Get(Bytes, u32),
    /// A set, with the key, the flags and the value.
    Set(Bytes, u32, Bytes),
    /// A job that a microbenchmark submits, without a client. The service makes the stored form or the reply from the
    /// job's result, as it does for a request, and then discards it.
    Probe,
}

impl Service {
    /// Makes a service over this store. The nonces of its encryptions count from `first_nonce` up.
    pub(crate) fn new(store: Arc<Embedded>, ops: Ops, first_nonce: u64) -> Self {
        let pool = Pool::heap(ByteCount::mib(4));
        Self { store, ops, pool, nonce: first_nonce, reply: Vec::new() }
    }

    /// Returns the implementations of encryption and checksums.
    pub(crate) fn ops(&self) -> &Ops {
        &self.ops
    }

    /// Returns the stored form of a key's value.
    pub(crate) fn stored(&self, key: &[u8]) -> Option<Bytes> {
        self.store.fetch(key, &Fetch::PEEK, NOW_S).map(|found| found.value)
    }

    /// Answers the request, or begins it and returns its job.
    ///
    /// # Errors
    /// The request or the stored value is wrong; the text says how.
    pub(crate) fn begin(&mut self, bytes: &Bytes, watch: &mut impl Watch) -> Result<Step, String> {
        let Parse::Command { command, consumed } = protocol::parse(bytes, &Limits::default())
        else {
            return Err("not a whole command".to_owned());
        };
        match command {
            Command::Get(get) => {
                let key = get.keys.into_iter().next().ok_or("a get without a key")?;
                let key = bytes.slice_ref(key.bytes());
                watch.lap(Stage::Parse);
                self.get(key, watch)
            }
            Command::Store(set) => {
                let (key, flags) = (bytes.slice_ref(set.key.bytes()), set.client_flags);
                let value = bytes.slice(consumed..consumed + set.value_bytes);
                watch.lap(Stage::Parse);
                self.set(key, flags, value, watch)
            }
            _ => Err("neither get nor set".to_owned()),
        }
    }

    fn get(&mut self, key: Bytes, watch: &mut impl Watch) -> Result<Step, String> {
        let found = self.store.fetch(&key, &Fetch::GET, NOW_S).ok_or("a key that is not there")?;
        watch.lap(Stage::KeyValue);
        let header = Header::read(&found.value)?;
        let mut payload = found.value.slice(HEADER_BYTES..);
        if found.flags & ENCRYPTED != 0 {
            payload = self.unseal(&payload)?;
            watch.lap(Stage::SecureIo);
        }
        let checksum = self.ops.checksum.crc32c(&payload);
        watch.lap(Stage::Checksum);
        if checksum != header.checksum {
            return Err("a wrong checksum".to_owned());
        }
        if found.flags & COMPRESSED != 0 {
            let job = self.decompression(payload, header.original_bytes as usize);
            return Ok(Step::Job(job, Pending::Get(key, found.flags)));
        }
        self.begin_reply(&key, found.flags, payload.len());
        self.reply.extend_from_slice(&payload);
        self.end_reply(watch);
        Ok(Step::Done)
    }

    fn set(
        &mut self,
        key: Bytes,
        flags: u32,
        value: Bytes,
        watch: &mut impl Watch,
    ) -> Result<Step, String> {
        if flags & COMPRESSED != 0 {
            let job = self.compression(value.clone());
            return Ok(Step::Job(job, Pending::Set(key, flags, value)));
        }
        let form = self.form(flags, &value, value.len());
        watch.lap(Stage::KeyValue);
        self.store(key, flags, form, watch)
    }

    /// Continues a request whose job is done. The job's time counts for `stage`.
    ///
    /// # Errors
    /// The job failed.
    pub(crate) fn finish(
        &mut self,
        pending: Pending,
        completion: &Completion,
        stage: Stage,
        watch: &mut impl Watch,
    ) -> Result<(), String> {
        let bytes = match &completion.outcome {
            Outcome::Done { output_bytes } => *output_bytes,
            other => return Err(format!("a job ended with {other:?}")),
        };
        let result = &completion.job.output[..bytes];
        match pending {
            Pending::Get(key, flags) => {
                self.begin_reply(&key, flags, bytes);
                self.reply.extend_from_slice(result);
                watch.lap(stage);
                self.end_reply(watch);
                Ok(())
            }
            Pending::Set(key, flags, value) => {
                let form = self.form(flags, result, value.len());
                watch.lap(stage);
                self.store(key, flags, form, watch).map(drop)
            }
            Pending::Probe if matches!(completion.job.task, Task::Compress { .. }) => {
                std::hint::black_box(self.form(COMPRESSED, result, bytes));
                Ok(())
            }
            Pending::Probe => {
                self.begin_reply(b"probe", 0, bytes);
                self.reply.extend_from_slice(result);
                std::hint::black_box(&self.reply);
                Ok(())
            }
        }
    }

    /// Decrypts a value that [`seal`] encrypted and returns it without its header. It decrypts into a buffer
    /// of the pool, so that the measurement does not depend on the allocator.
    pub(crate) fn unseal(&self, sealed: &[u8]) -> Result<Bytes, String> {
        let (rest, tag) = sealed.split_last_chunk::<TAG_BYTES>().ok_or("no room for a tag")?;
        let (text, nonce) = rest.split_last_chunk::<NONCE_BYTES>().ok_or("no room for a nonce")?;
        let mut plain = self.pool.take(text.len());
        plain.extend(text);
        if !self.ops.cipher.open(*nonce, &mut plain, *tag) {
            return Err("a wrong tag".to_owned());
        }
        Ok(plain.freeze(0..text.len()))
    }

    /// Returns the job that compresses a value.
    pub(crate) fn compression(&self, value: Bytes) -> Box<Job> {
        let output = self.pool.take(value.len() + value.len() / 8 + STREAM_SLACK_BYTES);
        let task = Task::Compress { dialect: Dialect::IAA, level: Level::Default };
        Box::new(Job::new(task, Input::heap(value), output))
    }

    /// Returns the job that decompresses a stream.
    pub(crate) fn decompression(&self, stream: Bytes, original_bytes: usize) -> Box<Job> {
        let output = self.pool.take(original_bytes);
        let task = Task::Decompress { dialect: Dialect::IAA, original_bytes };
        Box::new(Job::new(task, Input::heap(stream), output))
    }

    /// Returns an unfinished stored form: a header without its checksum, and then the payload, which is not
    /// encrypted yet.
    fn form(&self, flags: u32, payload: &[u8], original_bytes: usize) -> Vec<u8> {
        let more = if flags & ENCRYPTED != 0 { NONCE_BYTES + TAG_BYTES } else { 0 };
        let mut form = Vec::with_capacity(HEADER_BYTES + payload.len() + more);
        form.extend_from_slice(&[0; 4]);
        form.extend_from_slice(&(original_bytes as u32).to_le_bytes());
        form.extend_from_slice(payload);
        form
    }

    fn store(
        &mut self,
        key: Bytes,
        flags: u32,
        mut form: Vec<u8>,
        watch: &mut impl Watch,
    ) -> Result<Step, String> {
        let checksum = self.ops.checksum.crc32c(&form[HEADER_BYTES..]);
        form[..4].copy_from_slice(&checksum.to_le_bytes());
        watch.lap(Stage::Checksum);
        if flags & ENCRYPTED != 0 {
            self.nonce += 1;
            seal(&self.ops.cipher, self.nonce, &mut form);
            watch.lap(Stage::SecureIo);
        }
        let item = NewItem { value: &form, flags, ..NewItem::default() };
        let stored = self.store.store(&key, item, Mode::Set, NOW_S);
        stored.map_err(|error| error.to_string())?;
        watch.lap(Stage::KeyValue);
        self.reply.clear();
        self.reply.extend_from_slice(Reply::Stored.line());
        watch.lap(Stage::Reply);
        Ok(Step::Done)
    }

    fn begin_reply(&mut self, key: &[u8], flags: u32, bytes: usize) {
        self.reply.clear();
        reply::value_header(&mut self.reply, key, flags, bytes, None);
    }

    fn end_reply(&mut self, watch: &mut impl Watch) {
        self.reply.extend_from_slice(b"\r\n");
        self.reply.extend_from_slice(Reply::End.line());
        watch.lap(Stage::Reply);
    }

    /// Returns the reply to the last request.
    #[cfg(test)]
    fn reply(&self) -> &[u8] {
        &self.reply
    }
}

/// The header in front of a stored payload.
pub(crate) struct Header {
    checksum: u32,
    pub(crate) original_bytes: u32,
}

impl Header {
    pub(crate) fn read(form: &[u8]) -> Result<Self, String> {
        let word = |at: usize| {
            let bytes = form.get(at..at + 4).ok_or("a value without a header")?;
            let bytes = bytes.try_into().map_err(|_| "four bytes are four bytes")?;
            Ok::<u32, &str>(u32::from_le_bytes(bytes))
        };
        Ok(Self { checksum: word(0)?, original_bytes: word(4)? })
    }
}

/// Encrypts everything behind the header, and appends nonce and tag.
pub(crate) fn seal(cipher: &Cipher, count: u64, form: &mut Vec<u8>) {
    let mut nonce = [0; NONCE_BYTES];
    nonce[..8].copy_from_slice(&count.to_le_bytes());
    let tag = cipher.seal(nonce, &mut form[HEADER_BYTES..]);
    form.extend_from_slice(&nonce);
    form.extend_from_slice(&tag);
}

/// The size of the header, which contains the checksum and the size of the plain value (bytes).
pub(crate) const HEADER_BYTES: usize = 8;

/// The number of bytes by which compression may enlarge incompressible bytes.
const STREAM_SLACK_BYTES: usize = 1 << 10;

/// The service's time (s). It is constant, so nothing expires.
const NOW_S: u32 = 1;

#[cfg(test)]
mod tests {
    use device::{Device, Queue, Software};
    use store::embedded::Options;

    use super::*;
    use crate::accelerometer::service::watch::Off;

    fn service(cipher: Cipher, checksum: Checksum, store: &Arc<Embedded>) -> Service {
        Service::new(Arc::clone(store), Ops { cipher, checksum }, 0)
    }

    fn ask(service: &mut Service, queue: &mut dyn Queue, request: &str) -> Result<String, String> {
        match service.begin(&Bytes::copy_from_slice(request.as_bytes()), &mut Off)? {
            Step::Done => {}
            Step::Job(job, pending) => {
                queue.try_submit(job).map_err(|refused| format!("{:?}", refused.reason))?;
                let mut done = Vec::new();
                queue.poll(&mut done);
                service.finish(pending, &done[0], Stage::Compress, &mut Off)?;
            }
        }
        Ok(String::from_utf8_lossy(service.reply()).into_owned())
    }

    #[test]
    fn one_way_reads_what_the_other_stored() {
        let limit = ByteCount::mib(8);
        let options = Options { limit, evict: true, seed: 1 };
        let store = Arc::new(Embedded::new(options));
        let key = [9; 32];
        let mut tables = service(Cipher::table(&key), Checksum::Table, &store);
        let mut hardware = service(Cipher::processor(&key), Checksum::Processor, &store);
        let waker = std::task::Waker::noop().clone();
        let mut queue = Software::default().open_queue(waker).expect("software opens");
        let value = "to be or not to be ".repeat(20);
        for flags in 0..4 {
            let set = format!("set k {flags} 0 {}\r\n{value}\r\n", value.len());
            assert_eq!(ask(&mut tables, &mut *queue, &set).as_deref(), Ok("STORED\r\n"));
            let form = store.fetch(b"k", &Fetch::PEEK, NOW_S).expect("stored").value;
            let shrunk = form.len() < value.len();
            assert_eq!(shrunk, flags & COMPRESSED != 0, "flags {flags}");
            let shown = form.windows(9).any(|window| window == b"to be or ");
            assert_eq!(shown, flags == 0, "flags {flags}: only then it is stored as it came");
            let expected = format!("VALUE k {flags} {}\r\n{value}\r\nEND\r\n", value.len());
            let got = ask(&mut hardware, &mut *queue, "get k\r\n");
            assert_eq!(got, Ok(expected), "flags {flags}");
            let mut damaged = form.to_vec();
            damaged[HEADER_BYTES + 1] ^= 4;
            let item = NewItem { value: &damaged, flags, ..NewItem::default() };
            store.store(b"k", item, Mode::Set, NOW_S).expect("room");
            assert!(ask(&mut hardware, &mut *queue, "get k\r\n").is_err(), "flags {flags}");
        }
        assert!(ask(&mut tables, &mut *queue, "get nothing\r\n").is_err());
        assert!(ask(&mut tables, &mut *queue, "get k").is_err());
    }
}
