//! AppCore: the thread that runs only the handlers. It exchanges requests, responses and buffers with the
//! engine as words. The engine runs on one other thread, or its halves run on two other threads.

use std::collections::VecDeque;

use drivers::mailbox::Receiver;
use rpc::{Code, Command, DataPage, Interface, Record, Reply};

use super::handlers::{Handler, ONEWAY, RECORD_GROWTH, respond};
use super::mailbox::{Buffer, Mail, Outbox};

/// A message from an engine.
pub(super) enum Delivery {
    /// App.Recv has a request of this length.
    Request(Buffer, usize),
    /// The engine refused the response and returns its buffer. `recv` is the buffer of the read
    /// that reported the refusal, if that read had a buffer.
    Refused { code: Code, response: Buffer, recv: Option<Buffer> },
    /// The engine has finished with this App.Resp buffer.
    Free(Buffer),
    /// The read ended without a request and returns its buffer.
    Unread(Buffer),
}

pub(super) struct AppCore {
    handler: Box<dyn Handler>,
    /// One mailbox to the engine, or one to RxEngine and one to TxEngine.
    mail: Vec<Outbox<Mail>>,
    deliveries: Vec<Receiver<Delivery>>,
    /// The free response buffers. `requests` holds the requests that wait for a response buffer.
    free: Vec<Buffer>,
    requests: VecDeque<(Buffer, usize)>,
}

/// Maps buffers for `depth` requests in this page and lends them to AppCore.
pub(super) fn lent(page: &mut DataPage, depth: usize, buffer_bytes: usize) -> Vec<Buffer> {
    let one = |_| {
        let at = page.map(buffer_bytes);
        (at, page.lend(at).expect("it was mapped just now"))
    };
    (0..depth).map(one).collect()
}

/// Returns the size of the largest record (bytes) for messages of `buffer_bytes` bytes.
pub(super) const fn record_bytes(buffer_bytes: usize) -> usize {
    RECORD_GROWTH * buffer_bytes
}

impl AppCore {
    /// Creates AppCore with buffers for requests (`reads`) and buffers for responses (`free`).
    pub(super) fn new(
        handler: Box<dyn Handler>,
        mail: Vec<Outbox<Mail>>,
        deliveries: Vec<Receiver<Delivery>>,
        (reads, free): (Vec<Buffer>, Vec<Buffer>),
    ) -> Self {
        let mut core = Self { handler, mail, deliveries, free, requests: VecDeque::new() };
        reads.into_iter().for_each(|recv| core.read(recv));
        core
    }

    /// Takes the waiting deliveries. Returns whether there was a delivery.
    pub(super) fn turn(&mut self) -> bool {
        let mut moved = false;
        for inbox in 0..self.deliveries.len() {
            let Some(delivery) = self.deliveries[inbox].pop() else { continue };
            moved = true;
            self.take(delivery);
            while let Some(request) = self.request() {
                self.handle(request);
            }
        }
        moved
    }

    fn take(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Request(recv, length) => self.requests.push_back((recv, length)),
            Delivery::Free(response) => self.free.push(response),
            Delivery::Unread(recv) => self.read(recv),
            Delivery::Refused { code, response: (at, mut bytes), recv } => {
                match Reply::again(&mut bytes, code) {
                    Some(length) => self.respond((at, bytes), length),
                    None => self.free.push((at, bytes)),
                }
                recv.into_iter().for_each(|recv| self.read(recv));
            }
        }
    }

    /// Returns a waiting request together with a buffer for its response. Returns none if there is
    /// no request or no buffer.
    fn request(&mut self) -> Option<(Buffer, usize, Buffer)> {
        if self.requests.is_empty() {
            return None;
        }
        let response = self.free.pop()?;
        let (recv, length) = self.requests.pop_front()?;
        Some((recv, length, response))
    }

    /// Handles a request. Profiles identify this core's cost per request, without polling, by the
    /// name of this function.
    #[inline(never)]
    fn handle(&mut self, ((at, bytes), length, (to, mut response)): (Buffer, usize, Buffer)) {
        let record = bytes.get(..length).and_then(Record::read);
        match record {
            Some(record) => {
                let length = respond(&mut *self.handler, &record, &mut response);
                match record.token {
                    ONEWAY => self.free.push((to, response)),
                    _ => self.respond((to, response), length),
                }
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
        let to_tx = word.interface() == Interface::AppResp;
        let to = if to_tx { self.mail.last_mut() } else { self.mail.first_mut() };
        to.expect("an engine is there").send(Mail { word, buffer });
    }
}

#[cfg(test)]
mod tests {
    use rpc::Reply;

    use super::super::mailbox::mailbox;
    use super::*;

    struct Nothing;

    impl Handler for Nothing {
        fn handle(&mut self, _: &Record<'_>, _: &mut Reply<'_>) -> Result<usize, Code> {
            Err(Code::UnknownFunction)
        }
    }

    #[test]
    fn the_caller_learns_once_that_its_response_was_refused() {
        let (mail, mut words) = mailbox(8, None);
        let (mut deliveries, inbox) = mailbox(8, None);
        let mut page = DataPage::default();
        let mut responses = lent(&mut page, 1, 256);
        let (at, mut response) = responses.pop().expect("one");
        // An answer with the token 7, written as a handler would write it.
        response[0] = 7;
        let mut core =
            AppCore::new(Box::new(Nothing), vec![mail], vec![inbox], (Vec::new(), responses));
        let refused = |response| Delivery::Refused { code: Code::Malformed, response, recv: None };
        deliveries.send(refused((at, response)));
        assert!(core.turn());
        let Some(Mail { word: Command::SendAppBuf(_), buffer: Some((_, again)) }) = words.pop()
        else {
            panic!("its caller is told");
        };
        assert_eq!(again[0], 7);
        assert!(matches!(words.pop(), Some(Mail { word: Command::SendAppResp(24), .. })));
        deliveries.send(refused((at, again)));
        assert!(core.turn());
        assert!(words.pop().is_none() && core.free.len() == 1, "its place is free for others");
    }
}
