//! NetCore: one thread's loop over sockets and engines. It sleeps in the kernel while nothing is in
//! flight. Otherwise it polls sockets and mailboxes in turn.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rpc::wire::FRAME_HEAD_BYTES;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use slab::Slab;

use super::connection::{Connection, Inbound};
use super::exchange::{Answer, Engines};
use super::{RpcCounters, RpcListen, RpcOptions};

pub(super) struct NetCore {
    epoll: OwnedFd,
    listener: TcpListener,
    connections: Slab<Connection>,
    connections_max: usize,
    frame_bytes_max: usize,
    /// The connections with a complete frame that is not in flight. Each connection occurs at most
    /// once.
    ready: VecDeque<usize>,
    /// The time at which a connection could not be accepted for lack of file descriptors or memory. The
    /// listener would report the waiting connection continually, so it is not polled for a while.
    accept_paused_since: Option<Instant>,
    counters: Arc<RpcCounters>,
    stop: Arc<AtomicBool>,
}

impl NetCore {
    pub(super) fn new(
        listener: TcpListener,
        wake: &OwnedFd,
        (options, listen): (&RpcOptions, &RpcListen),
        counters: Arc<RpcCounters>,
        stop: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        epoll::add(&epoll, wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        Ok(Self {
            epoll,
            listener,
            connections: Slab::new(),
            connections_max: listen.connections_max,
            frame_bytes_max: options.message_bytes_max.as_usize() + FRAME_HEAD_BYTES,
            ready: VecDeque::new(),
            accept_paused_since: None,
            counters,
            stop,
        })
    }

    /// Serves until the stop flag is set.
    pub(super) fn run(mut self, engines: &mut dyn Engines) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut idle_rounds = 0u32;
        while !self.stop.load(Ordering::Acquire) {
            if !engines.is_alive() {
                return Err(io::Error::other("a thread of the layout has ended"));
            }
            let moved = self.exchange(engines);
            idle_rounds = if moved { 0 } else { idle_rounds.wrapping_add(1) };
            let busy = engines.is_busy();
            // Answers will come soon, so the mailbox is polled many times per poll of the sockets.
            if busy && !idle_rounds.is_multiple_of(ROUNDS_PER_WAIT) {
                std::hint::spin_loop();
                continue;
            }
            if busy && idle_rounds > 0 {
                std::thread::yield_now();
            }
            self.poll_sockets(busy || !self.ready.is_empty(), &mut events)?;
        }
        Ok(())
    }

    /// Polls the sockets. Waits for them if there is nothing else to do.
    fn poll_sockets(&mut self, has_work: bool, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        events.clear();
        let timeout = match self.accept_paused_since {
            _ if has_work => Some(Timespec { tv_sec: 0, tv_nsec: 0 }),
            Some(_) => Some(Timespec { tv_sec: 0, tv_nsec: ACCEPT_PAUSE.as_nanos() as _ }),
            None => None,
        };
        match epoll::wait(&self.epoll, spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if self.accept_paused_since.is_some_and(|since| since.elapsed() >= ACCEPT_PAUSE) {
            self.accept_paused_since = None;
            self.listen(epoll::EventFlags::IN)?;
        }
        for event in events {
            match event.data.u64() {
                LISTENER => self.accept()?,
                WAKE => {}
                index => self.served(index as usize, event.flags),
            }
        }
        Ok(())
    }

    fn listen(&self, flags: epoll::EventFlags) -> io::Result<()> {
        let data = epoll::EventData::new_u64(LISTENER);
        Ok(epoll::modify(&self.epoll, &self.listener, data, flags)?)
    }

    /// Moves frames to the engine and answers from the engine. Stops when nothing moves, or after
    /// [`EXCHANGES_PER_POLL`] rounds so that the sockets are polled. Returns whether anything moved.
    fn exchange(&mut self, engines: &mut dyn Engines) -> bool {
        let mut moved = false;
        for _ in 0..EXCHANGES_PER_POLL {
            let mut again = self.submit(engines);
            again |= engines.turn();
            while engines.take(&mut |owner, answer| self.answer(owner, &answer)) {
                again = true;
            }
            moved |= again;
            if !again {
                break;
            }
        }
        moved
    }

    fn submit(&mut self, engines: &mut dyn Engines) -> bool {
        let mut submitted = false;
        while engines.has_capacity() {
            let Some(index) = self.ready.pop_front() else { break };
            let Some(connection) = self.connections.get_mut(index) else { continue };
            connection.queued = false;
            let Inbound::Frame(frame) = connection.inbound(self.frame_bytes_max) else { continue };
            engines.submit(index, frame);
            let length = frame.len();
            connection.consume(length);
            submitted = true;
        }
        submitted
    }

    fn answer(&mut self, index: usize, answer: &Answer<'_>) {
        let counters = &self.counters;
        let (frame, counter) = match answer {
            Answer::Frame(frame) => (Some(*frame), &counters.requests),
            Answer::Refusal(frame) => (Some(*frame), &counters.refused),
            Answer::None => (None, &counters.refused),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let Some(connection) = self.connections.get_mut(index) else { return };
        match frame {
            Some(frame) => connection.answer(frame),
            None => connection.give_up(),
        }
        if connection.write().is_err() {
            return self.close(index);
        }
        self.advance(index);
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if out_of_means(&error) => {
                    self.accept_paused_since = Some(Instant::now());
                    return self.listen(epoll::EventFlags::empty());
                }
                // There are no more connections, or this connection is already gone. The listener
                // reports the next connection.
                Err(_) => return Ok(()),
            };
            if self.connections.len() >= self.connections_max {
                continue;
            }
            let Ok(connection) = Connection::new(stream) else { continue };
            self.counters.connections.fetch_add(1, Ordering::Relaxed);
            let entry = self.connections.vacant_entry();
            let data = epoll::EventData::new_u64(entry.key() as u64);
            if epoll::add(&self.epoll, &connection.stream, data, edges()).is_ok() {
                entry.insert(connection);
            }
        }
    }

    /// Handles a socket that is ready for reading or writing.
    fn served(&mut self, index: usize, flags: epoll::EventFlags) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        connection.hung_up |= flags.intersects(ends());
        if flags.contains(epoll::EventFlags::OUT) && connection.write().is_err() {
            return self.close(index);
        }
        self.advance(index);
    }

    /// Reads more if the connection wants more, and queues a complete frame. Sockets report new
    /// bytes only once, so this function is called after every change that may allow reading.
    fn advance(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        if connection.wants_more(self.frame_bytes_max)
            && connection.read(self.frame_bytes_max).is_err()
        {
            return self.close(index);
        }
        let connection = &mut self.connections[index];
        let inbound = connection.inbound(self.frame_bytes_max);
        let is_bad = inbound == Inbound::TooLong;
        let is_whole = matches!(inbound, Inbound::Frame(_));
        // No request is handled for a client that does not take its answers. Once the client has
        // taken them, this function runs again.
        if is_whole && !connection.awaits && !connection.queued && connection.takes_answers() {
            connection.queued = true;
            self.ready.push_back(index);
        }
        // A connection closes only after earlier requests are answered.
        let is_over = is_bad || (connection.ended && !is_whole);
        if is_over && !connection.awaits && !connection.has_outbound() {
            self.counters.refused.fetch_add(u64::from(is_bad), Ordering::Relaxed);
            self.close(index);
        }
    }

    /// Closes a connection. If it has a request in flight, it keeps its number until the request is
    /// answered, so that no other connection gets the answer.
    fn close(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let _ = connection.stream.shutdown(std::net::Shutdown::Both);
        connection.ended = true;
        if connection.queued {
            self.ready.retain(|ready| *ready != index);
        }
        if !connection.awaits {
            self.connections.remove(index);
        }
    }
}

/// Returns the events to wait for on a connection: reading, writing and hang-up, edge-triggered.
fn edges() -> epoll::EventFlags {
    epoll::EventFlags::IN
        | epoll::EventFlags::OUT
        | epoll::EventFlags::RDHUP
        | epoll::EventFlags::ET
}

/// Returns the events of a client that has closed its sending side or the whole connection.
fn ends() -> epoll::EventFlags {
    epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR
}

/// Returns whether a connection could not be accepted for lack of file descriptors or memory.
fn out_of_means(error: &io::Error) -> bool {
    let means = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|error| means.contains(&error))
}

const LISTENER: u64 = u64::MAX;
const WAKE: u64 = u64::MAX - 1;
const EVENTS_MAX: usize = 256;
/// The maximum number of rounds between two polls of the sockets. A poll costs little compared with
/// this many rounds.
const EXCHANGES_PER_POLL: u32 = 16;
/// The pause after a failed accept, until file descriptors or memory may be available again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The number of rounds per poll of the sockets while answers are awaited. A poll of the sockets
/// costs as much as some tens of polls of a mailbox.
const ROUNDS_PER_WAIT: u32 = 64;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::thread;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};

    use super::super::RpcService;
    use super::*;

    /// Answers the first frame with many bytes. It treats the second as a message without function
    /// and caller.
    #[derive(Default)]
    struct Lengthy {
        in_flight: Option<usize>,
        answered: usize,
    }

    impl Engines for Lengthy {
        fn has_capacity(&self) -> bool {
            self.in_flight.is_none()
        }

        fn is_busy(&self) -> bool {
            self.in_flight.is_some()
        }

        fn submit(&mut self, owner: usize, _: &[u8]) {
            self.in_flight = Some(owner);
        }

        fn turn(&mut self) -> bool {
            false
        }

        fn take(&mut self, to: &mut dyn FnMut(usize, Answer<'_>)) -> bool {
            let Some(owner) = self.in_flight.take() else { return false };
            let answer = if self.answered == 0 { Answer::Frame(&LONG) } else { Answer::None };
            self.answered += 1;
            to(owner, answer);
            true
        }

        fn is_alive(&self) -> bool {
            true
        }
    }

    /// Larger than the socket's buffers, and smaller than the limit of unsent bytes.
    static LONG: [u8; 250 << 10] = [7; 250 << 10];

    #[test]
    fn requests_before_a_nameless_message_are_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("bound");
        // Accepted connections inherit this size.
        set_socket_send_buffer_size(&listener, 4 << 10).expect("a socket");
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = eventfd(0, flags).expect("an event");
        let (counters, stop) = (Arc::<RpcCounters>::default(), Arc::<AtomicBool>::default());
        let options = RpcOptions::new(RpcService::UniqueId);
        let listen = RpcListen { address, connections_max: 1 };
        let (net_counters, over) = (Arc::clone(&counters), Arc::clone(&stop));
        let net = NetCore::new(listener, &wake, (&options, &listen), net_counters, over)
            .expect("it starts");
        let served = thread::spawn(move || net.run(&mut Lengthy::default()));

        let mut client = TcpStream::connect(address).expect("it listens");
        client.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        set_socket_recv_buffer_size(&client, 4 << 10).expect("a socket");
        client.write_all(b"\0\0\0\x04long\0\0\0\x04abcd").expect("it is sent");
        let begun = Instant::now();
        while counters.refused.load(Ordering::Relaxed) == 0 {
            assert!(begun.elapsed() < TIMEOUT, "the second message is not refused");
            thread::yield_now();
        }
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).expect("it is closed in order");
        assert_eq!(answer.len(), LONG.len());

        stop.store(true, Ordering::Release);
        rustix::io::write(&wake, &1u64.to_ne_bytes()).expect("it is woken");
        served.join().expect("no panic").expect("it ends");
    }

    #[test]
    fn what_is_lacking_for_a_connection_may_be_there_later() {
        let lacks = |errno: Errno| out_of_means(&errno.into());
        assert!([Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM].into_iter().all(lacks));
        assert!(!lacks(Errno::AGAIN) && !lacks(Errno::CONNABORTED));
    }

    const TIMEOUT: Duration = Duration::from_secs(60);
}
