//! Tests the engine step by step: the commands and their words, the states, every error code at the
//! read that reports it, and functions that change while requests are in flight.

use std::sync::Arc;

use crate::common::Bench;
use rpc::flat::Build;
use rpc::services::memcached::{Found, GetArgs, GetResult, Memcached, SetArgs};
use rpc::services::unique_id::{ComposeUniqueIdResult, UniqueIdService};
use rpc::wire::refusal;
use rpc::{
    Address, Code, Command, Completion, Functions, Half, Interface, Limits, Memory, Record,
    Stalled, State, Unmapped, api, call,
};

fn limits(depth: usize) -> Limits {
    Limits { depth, flights: depth, field_bytes_max: 100 }
}

fn cache(depth: usize) -> Bench {
    Bench::new(limits(depth), Arc::new(Memcached))
}

fn packet(functions: &dyn Functions, function: u32, args: &[(usize, &[u8])]) -> Vec<u8> {
    let mut frame = vec![0; 1024];
    let build = |build: &mut Build<'_>| {
        let block = build.block(4)?;
        for (slot, bytes) in args {
            build.set_bytes(block, *slot, bytes)?;
        }
        Ok(block)
    };
    let length = call::frame(functions, function, 7, &mut frame, build).expect("room");
    frame.truncate(length);
    frame
}

fn get() -> Vec<u8> {
    packet(&Memcached, Memcached::GET, &[(GetArgs::KEY, b"key")])
}

fn states(bench: &mut Bench, half: Half) -> Vec<State> {
    bench.settle().iter().filter(|step| step.half == half).map(|step| step.to).collect()
}

fn miss(build: &mut Build<'_>) -> Result<usize, Code> {
    let result = build.block(GetResult::SLOTS)?;
    let found = build.block(Found::SLOTS)?;
    build.set(found, Found::HIT, 0);
    build.set_block(result, GetResult::SUCCESS, found);
    Ok(result)
}

#[test]
fn the_command_table() {
    let at = Address::new(0x1230).expect("aligned");
    let table = [
        (Command::SendNetBuf(at), 0x1231, Interface::NetRecv),
        (Command::SendNetLen(0x123), 0x1232, Interface::NetRecv),
        (Command::AppReadyFlag(at), 0x1233, Interface::AppRecv),
        (Command::SendAppBuf(at), 0x1234, Interface::AppResp),
        (Command::SendAppResp(0x123), 0x1235, Interface::AppResp),
        (Command::DpdkNetFlag(at), 0x1236, Interface::NetResp),
    ];
    for (command, word, interface) in table {
        assert_eq!((command.word(), command.interface()), (word, interface));
        assert_eq!(Command::decode(word), Some(command));
    }
    for opcode in [0].into_iter().chain(7..16) {
        assert_eq!(Command::decode(0x1230 | opcode), None);
    }
    assert_eq!(Command::decode(!15 | 2), Some(Command::SendNetLen((1 << 60) - 1)));
    assert_eq!(Address::new(0x1238), None, "the low bits are the opcode's");
}

#[test]
fn a_request_passes_all_states_and_buffers() {
    let mut bench = cache(4);
    bench.send(&get());
    assert!(bench.settle().is_empty(), "no buffer for the request yet");
    api::app_call_engine_read(&mut bench.engine, bench.app_recv).expect("taken");
    let steps = bench.settle();
    let to: Vec<State> = steps.iter().map(|step| step.to).collect();
    assert_eq!(to, [State::Busy, State::Done, State::IdleRecv]);
    assert_eq!(steps[1].work.loaded_bytes, get().len());
    assert_eq!(steps[1].work.function, Some(Memcached::GET));
    assert_eq!(steps[2].released, Some(bench.net_recv));
    let done = bench.engine.take(Interface::AppRecv).expect("a request");
    assert_eq!(steps[1].work.stored_bytes, done.length);
    assert_eq!((done.code, done.buffer), (Code::Done, bench.app_recv));
    let bytes = &bench.page.bytes(bench.app_recv).expect("mapped")[..done.length];
    let record = Record::read(bytes).expect("a record");
    assert_eq!((record.function, record.generation), (Memcached::GET, 1));
    assert_eq!(GetArgs(record.body).key(), Some(&b"key"[..]));
    assert_eq!(bench.engine.in_flight(), 1);

    bench.respond(done, miss);
    assert_eq!(states(&mut bench, Half::Tx), [State::Busy, State::Done, State::IdleRecv]);
    let (done, frame) = bench.frame().expect("a frame");
    assert_eq!((done.code, done.about), (Code::Done, bench.net_recv));
    let mut into = [0; 256];
    let answer = call::answer(&Memcached, Memcached::GET, 7, &frame, &mut into).expect("one");
    let call::Answer::Result(result) = answer else { panic!("{answer:?}") };
    assert_eq!(GetResult(result).success().and_then(Found::hit), Some(false));
    assert_eq!(bench.engine.in_flight(), 0);
}

#[test]
fn memory_in_flight_is_drained() {
    struct Slow(rpc::DataPage, usize);
    impl Memory for Slow {
        fn pair(
            &mut self,
            from: Address,
            length: usize,
            to: Address,
        ) -> Result<(&[u8], &mut [u8]), Unmapped> {
            self.0.pair(from, length, to)
        }
        fn in_flight(&self) -> usize {
            self.1
        }
    }
    let mut bench = cache(4);
    bench.send(&get());
    bench.send(&get());
    api::app_call_engine_read(&mut bench.engine, bench.app_recv).expect("taken");
    let mut memory = Slow(std::mem::take(&mut bench.page), 3);
    let mut step = || bench.engine.step_rx(&mut memory).map(|step| step.to);
    assert_eq!(step(), Some(State::Busy));
    assert_eq!(step(), Some(State::Drain));
    assert_eq!(step(), None, "three stores are out");
    memory.1 = 0;
    let mut step = || bench.engine.step_rx(&mut memory).map(|step| step.to);
    assert_eq!(step(), Some(State::Done));
    assert_eq!(step(), Some(State::IdleResp), "another packet is there");
    assert_eq!(step(), None, "and no buffer for it");
    assert_eq!(bench.engine.state(Half::Rx), State::IdleResp);
}

#[test]
fn every_fault_of_a_packet_is_told_to_the_network() {
    let mut long = get();
    long[3] += 1;
    let mut short = get();
    short[3] -= 1;
    let mut version = get();
    version[5] = 2;
    let mut reply = get();
    reply[7] = 2;
    let mut name = get();
    name[12] = b'N';
    let fields: [(usize, &[u8]); 2] = [(SetArgs::KEY, &[b'k'; 101]), (SetArgs::VALUE, b"v")];
    let big = packet(&Memcached, Memcached::SET, &fields);
    let keyless = call::frame(&Memcached, Memcached::GET, 7, &mut [0; 64], |args| args.block(1));
    assert_eq!(keyless, Err(Code::Malformed), "what is required is missing");
    let missing = b"\0\0\0\x10\x80\x01\0\x01\0\0\0\x03Get\0\0\0\x07\0".to_vec();
    let cases = [
        (long, Code::Truncated),
        (get()[..3].to_vec(), Code::Truncated),
        (short, Code::Malformed),
        (version, Code::Malformed),
        (reply, Code::Malformed),
        (missing, Code::Malformed),
        (name, Code::UnknownFunction),
        (big, Code::Oversized),
    ];
    let mut bench = cache(4);
    api::app_call_engine_read(&mut bench.engine, bench.app_recv).expect("taken");
    for (packet, code) in cases {
        bench.send(&packet);
        bench.settle();
        let (done, _) = bench.frame().expect("told");
        assert_eq!((done.code, done.about), (code, bench.net_recv), "{packet:02x?}");
        assert_eq!(bench.engine.take(Interface::AppRecv), None, "its read waits on");
        assert_eq!(bench.engine.in_flight(), 0);
    }
    bench.send(&get());
    bench.settle();
    assert_eq!(bench.engine.take(Interface::AppRecv).map(|done| done.code), Some(Code::Done));
}

#[test]
fn an_unmapped_buffer_loses_nothing() {
    let mut bench = cache(4);
    // The packet is not mapped: the network is told, maps the packet and sends it again.
    api::app_call_engine_read(&mut bench.engine, bench.app_recv).expect("taken");
    let lent = bench.page.lend(bench.net_recv).expect("mapped");
    api::net_call_engine_write(&mut bench.engine, bench.net_recv, 10).expect("taken");
    api::net_call_engine_read(&mut bench.engine, bench.net_resp).expect("taken");
    bench.settle();
    assert_eq!(bench.frame().map(|(done, _)| done.code), Some(Code::Unmapped));
    assert!(bench.page.put_back(bench.net_recv, lent));
    // App.Recv is not mapped: the application is told, and the packet waits for the next read.
    let lent = bench.page.lend(bench.app_recv).expect("mapped");
    bench.send(&get());
    bench.settle();
    let completion = bench.engine.take(Interface::AppRecv).expect("told");
    assert_eq!((completion.code, completion.buffer), (Code::Unmapped, bench.app_recv));
    assert!(bench.page.put_back(bench.app_recv, lent));
    api::app_call_engine_read(&mut bench.engine, bench.app_recv).expect("taken");
    bench.settle();
    let request = bench.engine.take(Interface::AppRecv).expect("a request");
    assert_eq!(request.code, Code::Done);
    // App.Resp is not mapped: the application is told, and its request stays in flight.
    api::app_call_engine_read(&mut bench.engine, bench.app_recv).expect("taken");
    let nowhere = Address::new(1 << 40).expect("aligned");
    api::app_call_engine_write(&mut bench.engine, nowhere, 100).expect("taken");
    bench.settle();
    let completion = bench.engine.take(Interface::AppRecv).expect("told");
    assert_eq!((completion.code, completion.about), (Code::Unmapped, nowhere));
    assert_eq!(bench.engine.in_flight(), 1);
    // Net.Resp is not mapped: the network is told, and the response waits for the next read.
    let lent = bench.page.lend(bench.net_resp).expect("mapped");
    bench.respond(request, miss);
    bench.settle();
    assert_eq!(bench.frame().map(|(done, _)| done.code), Some(Code::Unmapped));
    assert!(bench.page.put_back(bench.net_resp, lent));
    api::net_call_engine_read(&mut bench.engine, bench.net_resp).expect("taken");
    bench.settle();
    assert_eq!(bench.frame().map(|(done, _)| done.code), Some(Code::Done));
}

#[test]
fn faults_of_words_are_told_to_whoever_issued_them() {
    let mut bench = cache(2);
    let at = bench.net_recv;
    let completion = |bench: &mut Bench, read: Interface| -> Completion {
        let command = match read {
            Interface::NetResp => Command::DpdkNetFlag(bench.net_resp),
            _ => Command::AppReadyFlag(bench.app_recv),
        };
        bench.engine.issue(read, command.word()).expect("taken");
        bench.engine.take(read).expect("told")
    };
    for (interface, word) in [
        (Interface::NetRecv, 0x100),
        (Interface::NetRecv, Command::SendAppBuf(at).word()),
        (Interface::NetResp, Command::SendNetBuf(at).word()),
        (Interface::AppResp, Command::AppReadyFlag(at).word()),
        (Interface::AppRecv, 0xFF),
    ] {
        bench.engine.issue(interface, word).expect("taken");
        let done = completion(&mut bench, interface.read());
        assert_eq!((done.code, done.about.get()), (Code::BadOpcode, word & !15));
    }
    bench.engine.issue(Interface::NetRecv, Command::SendNetLen(5).word()).expect("taken");
    assert_eq!(completion(&mut bench, Interface::NetResp).code, Code::Unarmed);
    for _ in 0..3 {
        api::net_call_engine_write(&mut bench.engine, at, 5).expect("taken");
    }
    assert_eq!(completion(&mut bench, Interface::NetResp).code, Code::QueueFull);
    // No read asks for the errors: the interface stalls before an error is lost.
    let issued: Vec<_> = (0..3).map(|_| bench.engine.issue(Interface::NetRecv, 0)).collect();
    assert_eq!(issued, [Ok(()), Ok(()), Err(Stalled)]);
    assert_eq!(completion(&mut bench, Interface::NetResp).code, Code::BadOpcode);
    assert_eq!(bench.engine.issue(Interface::NetRecv, 0), Ok(()));
    // If completed reads are never taken, the interface stalls as well.
    let read = Command::AppReadyFlag(bench.app_recv).word();
    let issued: Vec<_> = (0..5).map(|_| bench.engine.issue(Interface::AppRecv, read)).collect();
    assert_eq!(issued, [Ok(()), Ok(()), Ok(()), Ok(()), Err(Stalled)]);
    assert_eq!(bench.engine.take(Interface::AppRecv).map(|d| d.code), Some(Code::QueueFull));
}

#[test]
fn a_response_that_is_none_leaves_its_request_in_flight() {
    let mut bench = cache(4);
    bench.net_resp = bench.page.map(128);
    bench.send(&get());
    api::app_call_engine_read(&mut bench.engine, bench.app_recv).expect("taken");
    bench.settle();
    let request = bench.engine.take(Interface::AppRecv).expect("a request");
    let completion = |bench: &mut Bench| {
        bench.settle();
        api::app_call_engine_read(&mut bench.engine, bench.app_recv).expect("taken");
        bench.engine.take(Interface::AppRecv).map(|done| (done.code, done.about))
    };
    // An empty result and an invalid record are refused.
    bench.respond(request, |build| build.block(GetResult::SLOTS));
    assert_eq!(completion(&mut bench), Some((Code::Malformed, bench.app_resp)));
    api::app_call_engine_write(&mut bench.engine, bench.app_resp, 3).expect("taken");
    assert_eq!(completion(&mut bench), Some((Code::Truncated, bench.app_resp)));
    // The result does not fit into Net.Resp.
    bench.respond(request, |build| {
        let result = build.block(GetResult::SLOTS)?;
        let found = build.block(Found::SLOTS)?;
        build.set(found, Found::HIT, 1);
        build.set_bytes(found, Found::VALUE, &[1; 128])?;
        build.set_block(result, GetResult::SUCCESS, found);
        Ok(result)
    });
    assert_eq!(completion(&mut bench), Some((Code::Oversized, bench.app_resp)));
    assert_eq!((bench.engine.in_flight(), bench.frame().is_some()), (1, false));
    // The application refuses the request: the caller is told, and a second answer belongs to no
    // request.
    bench.respond(request, |_| Err(Code::Oversized));
    bench.settle();
    let (done, frame) = bench.frame().expect("a frame");
    let mut into = [0; 64];
    let answer = call::answer(&Memcached, Memcached::GET, 7, &frame, &mut into);
    let words = Code::Oversized.to_string().into_bytes();
    assert_eq!(answer, Ok(call::Answer::Exception(7, words)));
    assert_eq!((done.code, bench.engine.in_flight()), (Code::Done, 0));
    bench.respond(request, miss);
    api::net_call_engine_read(&mut bench.engine, bench.net_resp).expect("taken");
    assert_eq!(completion(&mut bench), Some((Code::Malformed, bench.app_resp)));
}

#[test]
fn requests_in_flight_finish_on_the_functions_that_received_them() {
    let mut bench = cache(4);
    bench.send(&get());
    api::app_call_engine_read(&mut bench.engine, bench.app_recv).expect("taken");
    bench.settle();
    let old = bench.engine.take(Interface::AppRecv).expect("a request");
    assert_eq!(bench.engine.load(Arc::new(UniqueIdService)), 2);
    assert_eq!(bench.engine.generations(), 2);
    // The old service's functions are unknown to new requests.
    let second = bench.page.map(crate::common::BUFFER_BYTES);
    let old_recv = std::mem::replace(&mut bench.app_recv, second);
    bench.send(&get());
    api::app_call_engine_read(&mut bench.engine, second).expect("taken");
    bench.settle();
    let (done, _) = bench.frame().expect("told");
    assert_eq!(done.code, Code::UnknownFunction);
    let mut out = [0; 128];
    assert!(refusal(&get(), done.code, &mut out).is_some());
    // The new service's functions work while the old request is in flight.
    bench.send(&packet(&UniqueIdService, 0, &[]));
    bench.settle();
    let new = bench.engine.take(Interface::AppRecv).expect("a request");
    let bytes = bench.page.bytes(second).expect("mapped");
    assert_eq!(Record::read(bytes).expect("a record").generation, 2);
    bench.respond(new, |build| {
        let block = build.block(ComposeUniqueIdResult::SLOTS)?;
        build.set(block, ComposeUniqueIdResult::SUCCESS, 9);
        Ok(block)
    });
    bench.settle();
    assert_eq!(bench.frame().map(|(done, _)| done.code), Some(Code::Done));
    assert_eq!(bench.engine.generations(), 2);
    bench.app_recv = old_recv;
    bench.respond(old, miss);
    bench.settle();
    let (_, frame) = bench.frame().expect("a frame");
    let mut into = [0; 256];
    assert!(call::answer(&Memcached, Memcached::GET, 7, &frame, &mut into).is_ok());
    assert_eq!(bench.engine.generations(), 1, "the old functions are gone");
}

/// Sends a packet to the engine and returns its record.
fn received(bench: &mut Bench, packet: &[u8]) -> Vec<u8> {
    let place = bench.page.bytes_mut(bench.net_recv).expect("mapped");
    place[..packet.len()].copy_from_slice(packet);
    let (net_recv, app_recv) = (bench.net_recv, bench.app_recv);
    api::net_call_engine_write(&mut bench.engine, net_recv, packet.len()).expect("taken");
    api::app_call_engine_read(&mut bench.engine, app_recv).expect("taken");
    while bench.engine.step_rx(&mut bench.page).is_some() {}
    let done = bench.engine.take(Interface::AppRecv).expect("a request");
    assert_eq!(done.code, Code::Done);
    bench.page.bytes(app_recv).expect("mapped")[..done.length].to_vec()
}

/// Answers as an application that finds nothing. The engine turns the answer into a frame.
fn misses(tx: &mut Bench, record: &Record<'_>) {
    let resp = tx.page.bytes_mut(tx.app_resp).expect("mapped");
    let mut reply = rpc::Reply::to(record, resp).expect("room");
    let block = miss(&mut reply.body).expect("room");
    let length = reply.seal(block);
    let (app_resp, net_resp) = (tx.app_resp, tx.net_resp);
    api::app_call_engine_write(&mut tx.engine, app_resp, length).expect("taken");
    api::net_call_engine_read(&mut tx.engine, net_resp).expect("taken");
    while tx.engine.step_tx(&mut tx.page).is_some() {}
}

#[test]
fn one_engine_answers_what_another_received() {
    let (mut rx, mut tx) = (cache(2), cache(2));
    for round in 0..5 {
        let request = received(&mut rx, &get());
        let record = Record::read(&request).expect("a record");
        let flight = rx.engine.export(record.token).expect("in flight");
        assert_eq!((flight.token(), rx.engine.in_flight()), (record.token, 1));
        assert!(tx.engine.import(flight), "round {round}");
        assert!(!tx.engine.import(flight), "its place is taken by itself");
        misses(&mut tx, &record);
        let (done, frame) = tx.frame().expect("a frame");
        assert_eq!((done.code, done.about), (Code::Done, rx.net_recv));
        let mut into = [0; 256];
        let answer = call::answer(&Memcached, Memcached::GET, 7, &frame, &mut into);
        assert!(matches!(answer, Ok(call::Answer::Result(_))), "{answer:?}");
        assert_eq!((tx.engine.in_flight(), rx.engine.in_flight()), (0, 1));
        rx.engine.retire(record.token);
        assert_eq!(rx.engine.in_flight(), 0);
        assert!(rx.engine.export(record.token).is_none(), "it is nobody's now");
    }
    rx.engine.load(Arc::new(Memcached));
    let request = received(&mut rx, &get());
    let token = Record::read(&request).expect("a record").token;
    let flight = rx.engine.export(token).expect("in flight");
    assert!(!tx.engine.import(flight), "functions that this engine was not given");
}

#[test]
fn functions_stay_until_their_requests_arrived() {
    let (mut rx, mut tx) = (cache(2), cache(2));
    let request = received(&mut rx, &get());
    let record = Record::read(&request).expect("a record");
    // Both engines have the new service before the request of the old service is exported.
    assert_eq!(tx.engine.load_ahead(Arc::new(UniqueIdService)), 2);
    assert_eq!(rx.engine.load(Arc::new(UniqueIdService)), 2);
    let flight = rx.engine.export(record.token).expect("in flight");
    assert!(tx.engine.import(flight));
    misses(&mut tx, &record);
    let (_, frame) = tx.frame().expect("a frame");
    let answer = call::answer(&Memcached, Memcached::GET, 7, &frame, &mut [0; 256]).is_ok();
    assert!(answer, "on the old functions");
    assert_eq!(tx.engine.generations(), 2, "another may arrive");
    rx.engine.retire(record.token);
    assert_eq!(rx.engine.generations(), 1, "none will");
    tx.engine.all_arrived();
    assert_eq!(tx.engine.generations(), 1);
    let request = received(&mut rx, &packet(&UniqueIdService, 0, &[]));
    let token = Record::read(&request).expect("a record").token;
    assert!(tx.engine.import(rx.engine.export(token).expect("in flight")));
}

#[test]
fn a_refused_response_is_replaced_once() {
    let mut bench = cache(2);
    let request = received(&mut bench, &get());
    let record = Record::read(&request).expect("a record");
    let resp = bench.page.bytes_mut(bench.app_resp).expect("mapped");
    rpc::Reply::to(&record, resp).expect("room").seal(0);
    let length = rpc::Reply::again(resp, Code::Oversized).expect("an answer was there");
    assert_eq!(rpc::Reply::again(resp, Code::Malformed), None, "a refusal was");
    let (app_resp, net_resp) = (bench.app_resp, bench.net_resp);
    api::app_call_engine_write(&mut bench.engine, app_resp, length).expect("taken");
    api::net_call_engine_read(&mut bench.engine, net_resp).expect("taken");
    bench.settle();
    let (done, frame) = bench.frame().expect("its caller is told");
    let mut into = [0; 64];
    let answer = call::answer(&Memcached, Memcached::GET, 7, &frame, &mut into);
    assert_eq!(done.about, bench.net_recv);
    assert!(matches!(answer, Ok(call::Answer::Exception(7, _))), "{answer:?}");
}
