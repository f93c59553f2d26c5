//! The common part of the engine's tests: an engine with its buffers, and random messages of a
//! schema.
#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod both;

use std::sync::Arc;

use rpc::flat::Build;
use rpc::idl::{Schema, Type};
use rpc::{
    Address, Code, Completion, DataPage, Engine, Functions, Interface, Limits, Record, Reply, Step,
    api,
};
use units::Prng;

/// An engine and one buffer for each interface.
pub struct Bench {
    pub engine: Engine,
    pub page: DataPage,
    pub net_recv: Address,
    pub app_recv: Address,
    pub app_resp: Address,
    pub net_resp: Address,
}

impl Bench {
    pub fn new(limits: Limits, functions: Arc<dyn Functions>) -> Self {
        let mut page = DataPage::default();
        let [net_recv, app_recv, app_resp, net_resp] = [(); 4].map(|()| page.map(BUFFER_BYTES));
        let engine = Engine::new(limits, functions);
        Self { engine, page, net_recv, app_recv, app_resp, net_resp }
    }

    /// Steps both halves until neither moves.
    pub fn settle(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        loop {
            let begin = steps.len();
            steps.extend(self.engine.step_rx(&mut self.page));
            steps.extend(self.engine.step_tx(&mut self.page));
            if steps.len() == begin {
                return steps;
            }
        }
    }

    /// Puts a packet into Net.Recv, and issues a read for the packet's frame.
    pub fn send(&mut self, packet: &[u8]) {
        let place = self.page.bytes_mut(self.net_recv).expect("mapped");
        place[..packet.len()].copy_from_slice(packet);
        api::net_call_engine_write(&mut self.engine, self.net_recv, packet.len()).expect("taken");
        api::net_call_engine_read(&mut self.engine, self.net_resp).expect("taken");
    }

    /// Returns the result of the network's read, with the frame.
    pub fn frame(&mut self) -> Option<(Completion, Vec<u8>)> {
        let done = self.engine.take(Interface::NetResp)?;
        let frame = self.page.bytes(done.buffer).map(|bytes| bytes[..done.length].to_vec());
        Some((done, frame.unwrap_or_default()))
    }

    /// Answers the request in App.Recv with the block that `build` makes.
    pub fn respond(
        &mut self,
        done: Completion,
        build: impl FnOnce(&mut Build<'_>) -> Result<usize, Code>,
    ) {
        let mut resp = self.page.lend(self.app_resp).expect("mapped");
        let request = &self.page.bytes(self.app_recv).expect("mapped")[..done.length];
        let record = Record::read(request).expect("a record");
        let mut reply = Reply::to(&record, &mut resp).expect("room");
        let length = match build(&mut reply.body) {
            Ok(block) => reply.seal(block),
            Err(code) => reply.refuse(code),
        };
        assert!(self.page.put_back(self.app_resp, resp));
        api::app_call_engine_write(&mut self.engine, self.app_resp, length).expect("taken");
    }
}

/// Makes a block of a struct with random values. Optional fields are present at random.
pub fn random(schema: &Schema, place: usize, prng: &mut Prng, to: &mut Build<'_>) -> usize {
    let fields = &schema.structs[place].fields;
    let block = to.block(fields.len()).expect("room");
    let mut head = 0;
    for (slot, field) in fields.iter().enumerate() {
        if field.required || prng.below(4) > 0 {
            value(schema, &field.ty, prng, to, (block, slot));
            head |= 1 << slot;
        }
    }
    to.head(block, head);
    block
}

fn value(
    schema: &Schema,
    ty: &Type,
    prng: &mut Prng,
    to: &mut Build<'_>,
    (block, slot): (usize, usize),
) {
    let word = match ty {
        Type::Bool => prng.below(2),
        Type::Byte => i64::from(prng.bits() as i8) as u64,
        Type::I16 => i64::from(prng.bits() as i16) as u64,
        Type::I32 => i64::from(prng.bits() as i32) as u64,
        Type::I64 | Type::Double => prng.bits(),
        Type::String => {
            let mut bytes = vec![0; prng.below(20) as usize];
            prng.fill(&mut bytes);
            return to.put_bytes(block, slot, &bytes).expect("room");
        }
        Type::Struct(place) => {
            let child = random(schema, *place, prng, to);
            return to.link(block, slot, child);
        }
        Type::List(item) | Type::Set(item) => {
            return items(schema, &[item], prng, to, (block, slot));
        }
        Type::Map(key, item) => return items(schema, &[key, item], prng, to, (block, slot)),
    };
    to.put(block, slot, word);
}

fn items(
    schema: &Schema,
    types: &[&Type],
    prng: &mut Prng,
    to: &mut Build<'_>,
    (block, slot): (usize, usize),
) {
    let slots = prng.below(4) as usize * types.len();
    let list = to.block(slots).expect("room");
    for item in 0..slots {
        value(schema, types[item % types.len()], prng, to, (list, item));
    }
    to.head(list, slots as u64);
    to.link(block, slot, list);
}

pub const BUFFER_BYTES: usize = 1 << 16;
