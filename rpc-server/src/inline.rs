//! The application on NetCore's own thread. It handles a request as soon as the engine has read it.

use rpc::{Address, Code, DataPage, Engine, Interface, Record, Reply, api};

use super::exchange::{Application, Exchange};
use super::handlers::{Handler, ONEWAY, RECORD_GROWTH, respond};

pub(super) struct Inline {
    handler: Box<dyn Handler>,
    recv: Address,
    resp: Address,
    /// Whether the engine has the App.Recv buffer and may put a request into it.
    reading: bool,
}

impl Inline {
    pub(super) fn new(
        handler: Box<dyn Handler>,
        exchange: &mut Exchange,
        buffer_bytes: usize,
    ) -> Self {
        let [recv, resp] = [(); 2].map(|()| exchange.page.map(RECORD_GROWTH * buffer_bytes));
        Self { handler, recv, resp, reading: false }
    }

    /// Handles a request. Returns the length of its response (bytes), or none for a oneway request.
    fn answer(&mut self, page: &mut DataPage, length: usize) -> Option<usize> {
        let mut resp = page.lend(self.resp)?;
        let request = page.bytes(self.recv).and_then(|bytes| bytes.get(..length));
        let answered = request.and_then(Record::read).and_then(|record| {
            let length = respond(&mut *self.handler, &record, &mut resp);
            (record.token != ONEWAY).then_some(length)
        });
        page.put_back(self.resp, resp);
        answered
    }
}

impl Application for Inline {
    fn turn(&mut self, engine: &mut Engine, page: &mut DataPage) -> bool {
        let mut moved = false;
        if !self.reading {
            self.reading = api::app_call_engine_read(engine, self.recv).is_ok();
            moved = self.reading;
        }
        while let Some(done) = engine.take(Interface::AppRecv) {
            moved = true;
            self.reading = false;
            let length = match done.code {
                Code::Done => self.answer(page, done.length),
                code => page.bytes_mut(self.resp).and_then(|resp| Reply::again(resp, code)),
            };
            if let Some(length) = length {
                let issued = api::app_call_engine_write(engine, self.resp, length);
                issued.expect("one response at a time, and its completion was taken");
            }
        }
        moved
    }

    fn released(&mut self, _: &mut DataPage, _: Address) {}
}
