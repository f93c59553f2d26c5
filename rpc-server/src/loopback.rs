//! Serves frames in process: a client takes the place of the sockets. The loopback asks the client
//! for the next frame and gives it the answer. Recorded packets can thus be replayed through any
//! layout, and only the RPC layer and the handlers run.

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use units::Clock;

use super::exchange::{Answer, Engines};
use super::mailbox::back_off;
use super::{DEPTH, RpcError, RpcOptions, RpcPlacement, Times, engines};

/// A source of frames that also receives the answers.
pub trait LoopbackClient {
    /// Returns the next frame to send, including its head. `None` ends the replay once all frames
    /// are answered. Requests are handled in the order of the frames.
    fn next(&mut self) -> Option<&[u8]>;

    /// Receives the answer to the frame with this number, counted from 0 since the replay began.
    /// The answer is empty if the caller expects none or if a refusal cannot be written. A refusal
    /// may arrive before the answers to earlier frames.
    fn answered(&mut self, number: u64, answer: &[u8]);
}

/// A service without sockets. The thread that starts it becomes its NetCore and runs on NetCore's
/// core. Only this thread may use the loopback.
pub struct Loopback {
    engines: Box<dyn Engines>,
    placement: RpcPlacement,
    frame_bytes_max: usize,
    timeout: Duration,
}

/// The number of requests that may be in flight at once. The inline layout handles one request at a
/// time with any window.
pub const WINDOW: RangeInclusive<usize> = 1..=DEPTH;

impl Loopback {
    /// Starts the other threads of the layout. Pins the calling thread if the layout's threads are pinned.
    ///
    /// # Errors
    /// Fails if the options are not valid, or if the system refuses a thread or a core.
    pub fn start(options: &RpcOptions, clock: Arc<dyn Clock>) -> Result<Self, RpcError> {
        let placement = options.placed()?;
        let engines = engines(options, &placement, &Times::default(), clock)?;
        let frame_bytes_max = options.buffer_bytes();
        Ok(Self { engines, placement, frame_bytes_max, timeout: TIMEOUT })
    }

    /// Returns the service's threads and their cores.
    pub fn placement(&self) -> &RpcPlacement {
        &self.placement
    }

    /// Sends all frames of the client, with up to `window` requests in flight, until the last frame
    /// is answered.
    ///
    /// # Errors
    /// Returns [`RpcError::BadOptions`] for a window outside [`WINDOW`] or a frame longer than the
    /// longest message. Returns [`RpcError::Io`] if a thread of the layout has ended or if no
    /// answer came for ten seconds.
    pub fn replay(
        &mut self,
        window: usize,
        client: &mut dyn LoopbackClient,
    ) -> Result<(), RpcError> {
        if !WINDOW.contains(&window) {
            let problem = format!("a window of {window} requests; give 1 to {DEPTH}");
            return Err(RpcError::BadOptions(problem));
        }
        let (mut sent, mut answered, mut idle) = (0, 0, 0u32);
        let mut still_since = None;
        // Requests in flight are answered before the replay ends, whatever the reason for the end.
        let mut end = None;
        loop {
            let mut moved = false;
            while end.is_none() && sent - answered < window as u64 && self.engines.has_capacity() {
                match client.next() {
                    None => end = Some(Ok(())),
                    Some(frame) if frame.len() > self.frame_bytes_max => {
                        end = Some(Err(self.too_long(sent, frame.len())));
                    }
                    Some(frame) => {
                        self.engines.submit(sent as usize, frame);
                        sent += 1;
                        moved = true;
                    }
                }
            }
            moved |= self.engines.turn();
            moved |= self.engines.take(&mut |number, answer| {
                answered += 1;
                client.answered(number as u64, frame_of(&answer));
            });
            if !self.engines.is_busy()
                && let Some(result) = end
            {
                return result;
            }
            if moved {
                (idle, still_since) = (0, None);
                continue;
            }
            if !self.engines.is_alive() {
                return Err(io::Error::other("a thread of the layout has ended").into());
            }
            idle = idle.wrapping_add(1);
            back_off(idle);
            // Reading the clock costs as much as several polls.
            if idle.is_multiple_of(ROUNDS_PER_CLOCK)
                && still_since.get_or_insert_with(Instant::now).elapsed() >= self.timeout
            {
                let problem = format!("{} requests were not answered", sent - answered);
                return Err(io::Error::new(io::ErrorKind::TimedOut, problem).into());
            }
        }
    }

    fn too_long(&self, number: u64, bytes: usize) -> RpcError {
        let most = self.frame_bytes_max;
        RpcError::BadOptions(format!("frame {number} has {bytes} B; {most} B are the most here"))
    }
}

fn frame_of<'a>(answer: &Answer<'a>) -> &'a [u8] {
    match answer {
        Answer::Frame(frame) | Answer::Refusal(frame) => frame,
        Answer::None => &[],
    }
}

/// The timeout without progress while requests are in flight. Every handler is faster.
const TIMEOUT: Duration = Duration::from_secs(10);
const ROUNDS_PER_CLOCK: u32 = 4_096;

#[cfg(test)]
mod tests {
    use rpc::flat::Build;
    use rpc::services::memcached::{GetArgs, Memcached, SetArgs};
    use rpc::services::post_storage::{
        Post, PostStorageService, ReadPostsArgs, StorePostArgs, Url,
    };
    use rpc::wire::{MessageKind, Wire};
    use rpc::{Code, Functions, call};
    use units::{ByteCount, SystemClock};

    use super::super::{RpcCores, RpcLayout, RpcService};
    use super::*;

    struct Frames {
        frames: Vec<Vec<u8>>,
        sent: usize,
        answers: Vec<Option<Vec<u8>>>,
    }

    impl Frames {
        fn new(frames: &[Vec<u8>]) -> Self {
            Self { frames: frames.to_vec(), sent: 0, answers: vec![None; frames.len()] }
        }
    }

    impl LoopbackClient for Frames {
        fn next(&mut self) -> Option<&[u8]> {
            self.sent += 1;
            self.frames.get(self.sent - 1).map(Vec::as_slice)
        }

        fn answered(&mut self, number: u64, answer: &[u8]) {
            let place = &mut self.answers[number as usize];
            assert!(place.replace(answer.to_vec()).is_none(), "{number} is answered once");
        }
    }

    fn started(service: RpcService, layout: RpcLayout) -> Loopback {
        let options = RpcOptions {
            layout,
            cores: RpcCores::Any,
            message_bytes_max: ByteCount::kib(1),
            ..RpcOptions::new(service)
        };
        Loopback::start(&options, Arc::new(SystemClock::new())).expect("it starts")
    }

    fn frame(
        functions: &dyn Functions,
        function: u32,
        sequence: usize,
        args: impl FnOnce(&mut Build<'_>) -> Result<usize, Code>,
    ) -> Vec<u8> {
        let mut frame = vec![0; 1_028];
        let length = call::frame(functions, function, sequence as i32, &mut frame, args);
        frame.truncate(length.expect("room"));
        frame
    }

    /// Asserts that every layout gives the same answers to the same frames, and returns the
    /// answers.
    fn same_in_every_layout(service: RpcService, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let answers = RpcLayout::ALL.map(|layout| {
            let mut loopback = started(service, layout);
            let mut client = Frames::new(frames);
            loopback.replay(*WINDOW.end(), &mut client).expect("it runs");
            // Replays the frames a second time, one at a time, when everything is stored.
            let mut again = Frames::new(frames);
            loopback.replay(1, &mut again).expect("it runs");
            let answers = client.answers.into_iter().chain(again.answers);
            answers.map(|answer| answer.expect("answered")).collect::<Vec<_>>()
        });
        assert_eq!(answers[0], answers[1], "inline and two-thread");
        assert_eq!(answers[0], answers[2], "inline and four-thread");
        answers[0].clone()
    }

    fn kind(answer: &[u8]) -> Option<MessageKind> {
        Some(Wire::framed(answer, answer.len()).ok()?.message().ok()?.kind)
    }

    #[test]
    fn every_layout_answers_alike_and_refuses_alike() {
        let mut frames = Vec::new();
        for round in 0..200 {
            let key = format!("key {}", round % 7);
            let mut bytes = frame(&Memcached, (round % 3 / 2) as u32, round, |to| {
                let args = to.block(SetArgs::SLOTS)?;
                to.set_bytes(args, SetArgs::KEY, key.as_bytes())?;
                to.set_bytes(args, SetArgs::VALUE, &vec![round as u8; round])?;
                Ok(args)
            });
            match round % 17 {
                3 => bytes[12] = b'~',
                5 => bytes[7] = 9,
                11 => bytes[7] = MessageKind::Oneway as u8,
                _ => {}
            }
            frames.push(bytes);
        }
        // With the first name the refusal does not fit into a buffer. With the second it fits just
        // so.
        for name in [1_000, 900] {
            let message = [b"\x80\x01\0\x01\0\0", &u16::to_be_bytes(name)[..]].concat();
            let message = [&message[..], &vec![b'n'; name.into()], &[0; 5]].concat();
            frames.push([&(message.len() as u32).to_be_bytes()[..], &message].concat());
        }
        let get = frame(&Memcached, Memcached::GET, 7, |to| {
            let args = to.block(GetArgs::SLOTS)?;
            to.set_bytes(args, GetArgs::KEY, b"key 1")?;
            Ok(args)
        });
        frames.push(get);
        let answers = same_in_every_layout(RpcService::Memcached, &frames);
        assert_eq!(kind(&answers[0]), Some(MessageKind::Reply));
        assert_eq!(kind(&answers[3]), Some(MessageKind::Exception), "an unknown function");
        assert!(answers[5].is_empty(), "nobody can be told");
        assert!(answers[200].is_empty(), "an answer has no more bytes than a message may");
        assert_eq!(kind(&answers[201]), Some(MessageKind::Exception));
        assert_eq!(answers[202], answers[405], "the last value, both times");
    }

    #[test]
    fn every_layout_answers_too_long_answers_with_an_exception() {
        // Two such texts make 1,120 B.
        const TEXT_BYTES: usize = 520;
        let mut frames: Vec<_> = (0..2)
            .map(|id| {
                frame(&PostStorageService, PostStorageService::STORE_POST, 1, |to| {
                    let args = to.block(StorePostArgs::SLOTS)?;
                    let post = to.block(Post::SLOTS)?;
                    to.set(post, Post::POST_ID, id);
                    to.set_bytes(post, Post::TEXT, &[b't'; TEXT_BYTES])?;
                    to.set_block(args, StorePostArgs::POST, post);
                    Ok(args)
                })
            })
            .collect();
        for count in [1, 2, 1, 2, 2, 1] {
            let read = frame(&PostStorageService, PostStorageService::READ_POSTS, 1, |to| {
                let args = to.block(ReadPostsArgs::SLOTS)?;
                let ids = to.block(count)?;
                (0..count).for_each(|slot| to.put(ids, slot, slot as u64));
                to.head(ids, count as u64);
                to.set_block(args, ReadPostsArgs::POST_IDS, ids);
                Ok(args)
            });
            frames.push(read);
        }
        let answers = same_in_every_layout(RpcService::PostStorage, &frames);
        let kinds: Vec<_> = answers.iter().take(8).map(|answer| kind(answer)).collect();
        let [reply, exception] = [MessageKind::Reply, MessageKind::Exception].map(Some);
        let of_reads = [reply, exception, reply, exception, exception, reply];
        assert_eq!(kinds, [&[reply, reply][..], &of_reads].concat());
    }

    #[test]
    fn short_strings_have_enough_room_in_a_record() {
        let post = |fill: &dyn Fn(&mut Build<'_>, usize, usize) -> Result<(), Code>| {
            frame(&PostStorageService, PostStorageService::STORE_POST, 1, |to| {
                let args = to.block(StorePostArgs::SLOTS)?;
                let post = to.block(Post::SLOTS)?;
                to.set(post, Post::POST_ID, 7);
                fill(to, args, post)?;
                Ok(args)
            })
        };
        // 92 pairs of two one-letter strings: 920 B on the wire, 2,944 B in a record.
        let carrier = post(&|to, args, post| {
            to.set_block(args, StorePostArgs::POST, post);
            let map = to.block(2 * 92)?;
            (0..2 * 92).try_for_each(|slot| to.put_bytes(map, slot, b"a"))?;
            to.head(map, 2 * 92);
            to.set_block(args, StorePostArgs::CARRIER, map);
            Ok(())
        });
        // 55 addresses of two one-letter strings: 935 B on the wire, 2,640 B in a record.
        let urls = post(&|to, args, post| {
            let urls = to.block(55)?;
            for slot in 0..55 {
                let url = to.block(Url::SLOTS)?;
                to.set_bytes(url, Url::SHORTENED, b"s")?;
                to.set_bytes(url, Url::EXPANDED, b"e")?;
                to.link(urls, slot, url);
            }
            to.head(urls, 55);
            to.set_block(post, Post::URLS, urls);
            to.set_block(args, StorePostArgs::POST, post);
            Ok(())
        });
        let answers = same_in_every_layout(RpcService::PostStorage, &[carrier, urls]);
        let kinds: Vec<_> = answers.iter().map(|answer| kind(answer)).collect();
        assert_eq!(kinds, [Some(MessageKind::Reply); 4]);
    }

    /// Accepts every frame and never answers.
    struct Silent(usize);

    impl Engines for Silent {
        fn has_capacity(&self) -> bool {
            true
        }

        fn is_busy(&self) -> bool {
            self.0 > 0
        }

        fn submit(&mut self, _: usize, _: &[u8]) {
            self.0 += 1;
        }

        fn turn(&mut self) -> bool {
            false
        }

        fn take(&mut self, _: &mut dyn FnMut(usize, Answer<'_>)) -> bool {
            false
        }

        fn is_alive(&self) -> bool {
            true
        }
    }

    #[test]
    fn answers_that_never_come_end_the_replay() {
        let mut loopback = started(RpcService::UniqueId, RpcLayout::Inline);
        loopback.engines = Box::new(Silent(0));
        loopback.timeout = Duration::from_millis(1);
        let mut client = Frames::new(&[vec![0; 8], vec![0; 8], vec![0; 8]]);
        let problem = loopback.replay(2, &mut client).expect_err("nobody answers").to_string();
        assert_eq!(problem, "2 requests were not answered");
    }

    #[test]
    fn a_refused_replay_does_not_end_the_loopback() {
        let get = frame(&Memcached, Memcached::GET, 7, |to| {
            let args = to.block(GetArgs::SLOTS)?;
            to.set_bytes(args, GetArgs::KEY, b"key")?;
            Ok(args)
        });
        for layout in RpcLayout::ALL {
            let mut loopback = started(RpcService::Memcached, layout);
            let mut client = Frames::new(&[get.clone(), vec![0; 2_000], get.clone()]);
            let words = loopback.replay(16, &mut client).expect_err("too long").to_string();
            assert!(words.contains("frame 1 has 2000 B; 1028 B"), "{words}");
            assert!(client.answers[0].is_some() && client.answers[2].is_none());
            for window in [0, 17] {
                let words = loopback.replay(window, &mut client).expect_err("window").to_string();
                assert!(words.contains("1 to 16"), "{words}");
            }
            let mut client = Frames::new(std::slice::from_ref(&get));
            loopback.replay(16, &mut client).expect("it goes on");
            assert!(client.answers[0].is_some());
        }
    }
}
