//! The application on a core of its own, behind two mailboxes: single-producer single-consumer rings of messages that
//! carry words and, where a buffer changes hands, the buffer itself. Nothing is shared that both could touch.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use rpc::{Address, Code, Command, DataPage, Engine, Interface, Record};
use rtrb::{Consumer, Producer, RingBuffer};

use super::exchange::{Application, Exchange};
use super::handlers::{Handler, RECORD_GROWTH, refuse, respond};

type Buffer = (Address, Box<[u8]>);

/// A word on its way to the engine, with the buffer that it names if that changes hands.
struct Mail {
    word: Command,
    buffer: Option<Buffer>,
}

/// What comes back.
enum Delivery {
    /// A request of this length is in App.Recv.
    Request(Buffer, usize),
    /// The response was no good, and the read that told so is over: both buffers come back.
    Refused { code: Code, response: Buffer, recv: Buffer },
    /// The engine is through with App.Resp, or could not use a buffer.
    Free(Buffer),
    /// The read is over without a request.
    Unread(Buffer),
}

/// The NetCore's end.
pub(super) struct Split {
    mail: Consumer<Mail>,
    deliveries: Producer<Delivery>,
    /// The engine would not take it yet.
    held: Option<Mail>,
    bell: Arc<Bell>,
    app: Thread,
    thread: Option<JoinHandle<()>>,
}

/// The AppCore's end.
struct AppCore {
    handler: Box<dyn Handler>,
    mail: Producer<Mail>,
    deliveries: Consumer<Delivery>,
    bell: Arc<Bell>,
    /// Responses that nothing lies in, and requests that wait for one.
    free: Vec<Buffer>,
    requests: Vec<(Buffer, usize)>,
}

/// Whether the AppCore sleeps, and whether it is to end.
#[derive(Default)]
struct Bell {
    asleep: AtomicBool,
    stop: AtomicBool,
}

impl Split {
    /// Starts the AppCore.
    pub(super) fn start(
        handler: Box<dyn Handler>,
        exchange: &mut Exchange,
        depth: usize,
        buffer_bytes: usize,
    ) -> io::Result<Self> {
        // A message names one buffer that the other end has, or a length of one: never more than four a place.
        let (mail_in, mail) = RingBuffer::new(4 * depth);
        let (deliveries, deliveries_out) = RingBuffer::new(4 * depth);
        let bell = Arc::new(Bell::default());
        let mut lent = || {
            let at = exchange.page.map(RECORD_GROWTH * buffer_bytes);
            (at, exchange.page.lend(at).expect("it was mapped just now"))
        };
        let mut core = AppCore {
            handler,
            mail: mail_in,
            deliveries: deliveries_out,
            bell: Arc::clone(&bell),
            free: (0..depth).map(|_| lent()).collect(),
            requests: Vec::new(),
        };
        for recv in (0..depth).map(|_| lent()).collect::<Vec<_>>() {
            core.read(recv);
        }
        let thread =
            std::thread::Builder::new().name("rpc-app".into()).spawn(move || core.run())?;
        let app = thread.thread().clone();
        Ok(Self { mail, deliveries, held: None, bell, app, thread: Some(thread) })
    }

    fn deliver(&mut self, delivery: Delivery) {
        let sent = self.deliveries.push(delivery);
        sent.expect("each delivery carries a buffer, and the ring holds more than there are");
        // The push is to be seen before the flag is read: the AppCore sets it, then looks once more.
        fence(Ordering::SeqCst);
        if self.bell.asleep.load(Ordering::Relaxed) {
            self.app.unpark();
        }
    }

    fn take_mail(&mut self, engine: &mut Engine, page: &mut DataPage) -> bool {
        let Some(mail) = self.held.take().or_else(|| self.mail.pop().ok()) else { return false };
        let buffer = mail.buffer.map(|(at, bytes)| page.put_back(at, bytes));
        debug_assert_ne!(buffer, Some(false), "a buffer comes back where it was lent");
        if engine.issue(mail.word.interface(), mail.word.word()).is_err() {
            self.held = Some(Mail { word: mail.word, buffer: None });
            return false;
        }
        true
    }

    fn complete(&mut self, engine: &mut Engine, page: &mut DataPage) -> bool {
        let Some(done) = engine.take(Interface::AppRecv) else { return false };
        let Some(recv) = page.lend(done.buffer) else { return true };
        let recv = (done.buffer, recv);
        let delivery = match done.code {
            Code::Done => Delivery::Request(recv, done.length),
            code => match page.lend(done.about).filter(|_| done.about != done.buffer) {
                Some(bytes) => Delivery::Refused { code, response: (done.about, bytes), recv },
                None => Delivery::Unread(recv),
            },
        };
        self.deliver(delivery);
        true
    }
}

impl Application for Split {
    fn turn(&mut self, engine: &mut Engine, page: &mut DataPage) -> bool {
        let mut moved = false;
        while self.take_mail(engine, page) | self.complete(engine, page) {
            moved = true;
        }
        moved
    }

    fn released(&mut self, page: &mut DataPage, response: Address) {
        if let Some(bytes) = page.lend(response) {
            self.deliver(Delivery::Free((response, bytes)));
        }
    }

    fn is_alive(&self) -> bool {
        !self.deliveries.is_abandoned()
    }
}

impl Drop for Split {
    fn drop(&mut self) {
        self.bell.stop.store(true, Ordering::SeqCst);
        self.app.unpark();
        // A panic of the handler was reported when it happened.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl AppCore {
    fn run(mut self) {
        while !self.bell.stop.load(Ordering::Relaxed) {
            match self.next() {
                Some(Delivery::Request(recv, length)) => self.requests.push((recv, length)),
                Some(Delivery::Free(response)) => self.free.push(response),
                Some(Delivery::Unread(recv)) => self.read(recv),
                Some(Delivery::Refused { code, response: (at, mut bytes), recv }) => {
                    let token = Record::read(&bytes).map_or(0, |record| record.token);
                    if let Some(length) = refuse(token, code, &mut bytes) {
                        self.respond((at, bytes), length);
                    }
                    self.read(recv);
                }
                None => {}
            }
            while let Some(request) = self.request() {
                self.handle(request);
            }
        }
    }

    /// A request and a place for its response.
    fn request(&mut self) -> Option<(Buffer, usize, Buffer)> {
        if self.requests.is_empty() {
            return None;
        }
        let response = self.free.pop()?;
        let (recv, length) = self.requests.remove(0);
        Some((recv, length, response))
    }

    fn handle(&mut self, ((at, bytes), length, (to, mut response)): (Buffer, usize, Buffer)) {
        let record = bytes.get(..length).and_then(Record::read);
        match record {
            Some(record) => {
                let length = respond(&mut *self.handler, &record, &mut response);
                self.respond((to, response), length);
            }
            None => self.free.push((to, response)),
        }
        self.read((at, bytes));
    }

    fn respond(&mut self, response: Buffer, length: usize) {
        self.post(Command::SendAppBuf(response.0), Some(response));
        self.post(Command::SendAppResp(length as u64), None);
    }

    fn read(&mut self, recv: Buffer) {
        self.post(Command::AppReadyFlag(recv.0), Some(recv));
    }

    fn post(&mut self, word: Command, buffer: Option<Buffer>) {
        let sent = self.mail.push(Mail { word, buffer });
        sent.expect("three words a place, and the ring holds four");
    }

    /// Looks for a while, then sleeps until the bell.
    fn next(&mut self) -> Option<Delivery> {
        for round in 0..SPINS {
            if let Ok(delivery) = self.deliveries.pop() {
                return Some(delivery);
            }
            if round % YIELD_EVERY == YIELD_EVERY - 1 {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        self.bell.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let found = self.deliveries.pop().ok();
        if found.is_none() && !self.bell.stop.load(Ordering::SeqCst) {
            std::thread::park_timeout(SLEEP);
        }
        self.bell.asleep.store(false, Ordering::Relaxed);
        found
    }
}

/// Looks into the mailbox before sleeping: some tens of microseconds.
const SPINS: u32 = 2_000;
/// Where cores are few, whoever is to send may need this one.
const YIELD_EVERY: u32 = 256;
/// Longer than any bell takes; nothing depends on it.
const SLEEP: Duration = Duration::from_millis(100);
