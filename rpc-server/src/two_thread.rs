//! The layout with two threads: NetCore has the engine, and the application runs on another core
//! behind two mailboxes.

use std::io;
use std::sync::Arc;

use drivers::mailbox::Receiver;
use rpc::{Address, Code, DataPage, Engine, Interface};

use super::app_core::{AppCore, Delivery, lent, record_bytes};
use super::exchange::{Application, Exchange};
use super::handlers::Handler;
use super::mailbox::{Doorbell, Mail, Outbox, Worker, mailbox};

/// NetCore's side of the layout.
pub(super) struct TwoThread {
    mail: Receiver<Mail>,
    deliveries: Outbox<Delivery>,
    /// A message that the engine has not accepted yet.
    held: Option<Mail>,
    app: Worker,
}

impl TwoThread {
    /// Starts AppCore on `core`.
    pub(super) fn start(
        handler: Box<dyn Handler>,
        exchange: &mut Exchange,
        depth: usize,
        buffer_bytes: usize,
        core: Option<usize>,
    ) -> io::Result<Self> {
        let doorbell = Arc::new(Doorbell::default());
        // A message names a buffer that the other side has, or a buffer's length, so there are
        // never more than four messages per buffer.
        let (mail_in, mail) = mailbox(4 * depth, None);
        let (deliveries, deliveries_out) = mailbox(4 * depth, Some(&doorbell));
        let buffers = [(); 2].map(|()| lent(&mut exchange.page, depth, record_bytes(buffer_bytes)));
        let mut app = AppCore::new(handler, vec![mail_in], vec![deliveries_out], buffers.into());
        let app = Worker::start("rpc-app", core, doorbell, move || app.turn())?;
        Ok(Self { mail, deliveries, held: None, app })
    }

    fn take_mail(&mut self, engine: &mut Engine, page: &mut DataPage) -> bool {
        let Some(mail) = self.held.take().or_else(|| self.mail.pop()) else { return false };
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
        self.deliveries.send(match done.code {
            Code::Done => Delivery::Request(recv, done.length),
            code => match page.lend(done.about).filter(|_| done.about != done.buffer) {
                Some(bytes) => {
                    let response = (done.about, bytes);
                    Delivery::Refused { code, response, recv: Some(recv) }
                }
                None => Delivery::Unread(recv),
            },
        });
        true
    }
}

impl Application for TwoThread {
    fn turn(&mut self, engine: &mut Engine, page: &mut DataPage) -> bool {
        let mut moved = false;
        while self.take_mail(engine, page) | self.complete(engine, page) {
            moved = true;
        }
        moved
    }

    fn released(&mut self, page: &mut DataPage, response: Address) {
        if let Some(bytes) = page.lend(response) {
            self.deliveries.send(Delivery::Free((response, bytes)));
        }
    }

    fn is_alive(&self) -> bool {
        self.app.is_alive()
    }
}
