//! Tests one input with two drivers: threads with mailboxes between them, as in `rpc-server`, and a loop that
//! steps the engine, as a simulator does. Both must see the same words, the same states and the same frames.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

use crate::common::Bench;
use rpc::flat::Build;
use rpc::services::unique_id::{ComposeUniqueIdResult, UniqueIdService};
use rpc::{
    Address, Code, Command, Completion, Half, Interface, Limits, Record, Reply, State, call,
};

const ROUNDS: i32 = 200;

/// The record of what a driver saw.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    net_words: Vec<u64>,
    app_words: Vec<u64>,
    rx: Vec<State>,
    tx: Vec<State>,
    frames: Vec<Vec<u8>>,
}

/// Makes a packet. Every seventh packet has the name of an unknown function, and every eleventh
/// packet is truncated.
fn packet(round: i32) -> Vec<u8> {
    let mut frame = vec![0; 256];
    let build = |build: &mut Build<'_>| {
        let block = build.block(3)?;
        build.set(block, 0, round as u64);
        Ok(block)
    };
    let length = call::frame(&UniqueIdService, 0, round, &mut frame, build).expect("room");
    frame.truncate(length);
    if round % 7 == 3 {
        frame[12] = b'c';
    }
    if round % 11 == 5 {
        frame.truncate(length - 1);
    }
    frame
}

fn answer(record: &[u8], resp: &mut [u8]) -> usize {
    let record = Record::read(record).expect("a record");
    let mut reply = Reply::to(&record, resp).expect("room");
    let block = reply.body.block(ComposeUniqueIdResult::SLOTS).expect("room");
    let number = record.body.get(0).unwrap_or(0) * 3;
    reply.body.set(block, ComposeUniqueIdResult::SUCCESS, number);
    reply.seal(block)
}

fn bench() -> Bench {
    let limits = Limits { depth: 1, flights: 1, ..Limits::default() };
    Bench::new(limits, Arc::new(UniqueIdService))
}

/// Runs one loop that owns everything and steps the halves in turn.
fn stepped() -> Seen {
    let (mut bench, mut seen) = (bench(), Seen::default());
    let mut reading = false;
    for round in 0..ROUNDS {
        let bytes = packet(round);
        bench.page.bytes_mut(bench.net_recv).expect("mapped")[..bytes.len()]
            .copy_from_slice(&bytes);
        for command in net_commands(&bench, bytes.len()) {
            seen.net_words.push(command.word());
            bench.engine.issue(command.interface(), command.word()).expect("taken");
        }
        loop {
            if !reading {
                reading = true;
                let command = Command::AppReadyFlag(bench.app_recv);
                seen.app_words.push(command.word());
                bench.engine.issue(command.interface(), command.word()).expect("taken");
            }
            note(&mut bench, &mut seen);
            if let Some(done) = bench.engine.take(Interface::AppRecv) {
                reading = false;
                let mut resp = bench.page.lend(bench.app_resp).expect("mapped");
                let record = &bench.page.bytes(bench.app_recv).expect("mapped")[..done.length];
                let length = answer(record, &mut resp);
                bench.page.put_back(bench.app_resp, resp);
                for command in app_commands(&bench, length) {
                    seen.app_words.push(command.word());
                    bench.engine.issue(command.interface(), command.word()).expect("taken");
                }
                continue;
            }
            if let Some((done, frame)) = bench.frame() {
                seen.frames.push(if done.code == Code::Done { frame } else { Vec::new() });
                break;
            }
        }
    }
    seen
}

fn net_commands(bench: &Bench, length: usize) -> [Command; 3] {
    [
        Command::SendNetBuf(bench.net_recv),
        Command::SendNetLen(length as u64),
        Command::DpdkNetFlag(bench.net_resp),
    ]
}

fn app_commands(bench: &Bench, length: usize) -> [Command; 2] {
    [Command::SendAppBuf(bench.app_resp), Command::SendAppResp(length as u64)]
}

/// Steps until nothing moves, and records the states of each half.
fn note(bench: &mut Bench, seen: &mut Seen) {
    for step in bench.settle() {
        match step.half {
            Half::Rx => seen.rx.push(step.to),
            Half::Tx => seen.tx.push(step.to),
        }
    }
}

/// A word, and the buffer that belongs to it.
type Mail = (Command, Option<Box<[u8]>>);
type Back = (Completion, Box<[u8]>);

/// Runs NetCore, engine and AppCore as threads. A buffer moves with its last word.
fn threaded() -> Seen {
    let (net_out, net_mail) = channel::<Mail>();
    let (app_out, app_mail) = channel::<Mail>();
    let (net_done, net_in) = channel::<Back>();
    let (app_done, app_in) = channel::<Back>();
    let mut bench = bench();
    let mut lend = |at| bench.page.lend(at).expect("mapped");
    let (net_recv, net_resp) = (bench.net_recv, bench.net_resp);
    let (app_recv, app_resp) = (bench.app_recv, bench.app_resp);
    let [recv, resp] = [app_recv, app_resp].map(&mut lend);
    let [packets, frames] = [net_recv, net_resp].map(&mut lend);
    thread::scope(|scope| {
        let app = scope.spawn(move || {
            let (mut recv, mut resp) = (recv, Some(resp));
            while app_out.send((Command::AppReadyFlag(app_recv), Some(recv))).is_ok() {
                let Ok((done, buffer)) = app_in.recv() else { return };
                recv = buffer;
                let mut buffer = resp.take().unwrap_or_else(|| vec![0; 4_096].into());
                let length = answer(&recv[..done.length], &mut buffer);
                let _ = app_out.send((Command::SendAppBuf(app_resp), Some(buffer)));
                let _ = app_out.send((Command::SendAppResp(length as u64), None));
            }
        });
        let engine = scope.spawn(move || drive(bench, &net_mail, &app_mail, &net_done, app_done));
        let mut frames_seen = Vec::new();
        let (mut packets, mut frames) = (packets, frames);
        for round in 0..ROUNDS {
            let bytes = packet(round);
            packets[..bytes.len()].copy_from_slice(&bytes);
            let words = [
                (Command::SendNetBuf(net_recv), Some(packets.clone())),
                (Command::SendNetLen(bytes.len() as u64), None),
                (Command::DpdkNetFlag(net_resp), Some(frames)),
            ];
            words.into_iter().for_each(|mail| net_out.send(mail).expect("the engine lives"));
            let (done, buffer) = net_in.recv().expect("the engine answers");
            let of_value = done.code == Code::Done;
            frames_seen.push(if of_value { buffer[..done.length].to_vec() } else { Vec::new() });
            frames = buffer;
        }
        drop(net_out);
        let mut seen = engine.join().expect("no panic");
        app.join().expect("no panic");
        seen.frames = frames_seen;
        seen
    })
}

/// Runs the thread that has the engine until the network's mailbox closes.
fn drive(
    mut bench: Bench,
    net: &Receiver<Mail>,
    app: &Receiver<Mail>,
    net_done: &Sender<Back>,
    app_done: Sender<Back>,
) -> Seen {
    let mut seen = Seen::default();
    loop {
        for mailbox in [net, app] {
            match mailbox.try_recv() {
                Ok((command, buffer)) => {
                    let of_net = std::ptr::eq(mailbox, net);
                    let words = if of_net { &mut seen.net_words } else { &mut seen.app_words };
                    words.push(command.word());
                    if let (Some(buffer), Some(at)) = (buffer, Address::new(command.word() & !15)) {
                        drop(bench.page.lend(at));
                        assert!(bench.page.put_back(at, buffer));
                    }
                    bench.engine.issue(command.interface(), command.word()).expect("taken");
                }
                Err(TryRecvError::Disconnected) if std::ptr::eq(mailbox, net) => return seen,
                Err(_) => {}
            }
        }
        note(&mut bench, &mut seen);
        if let Some(done) = bench.engine.take(Interface::AppRecv) {
            let buffer = bench.page.lend(done.buffer).expect("here");
            let _ = app_done.send((done, buffer));
        }
        if let Some(done) = bench.engine.take(Interface::NetResp) {
            let buffer = bench.page.lend(done.buffer).expect("here");
            let _ = net_done.send((done, buffer));
        }
        thread::yield_now();
    }
}

#[test]
fn threads_and_steps_see_the_same() {
    let (mut stepped, mut threaded) = (stepped(), threaded());
    // The application's last read may come before or after the end of the network.
    let counts = [stepped.app_words.len(), threaded.app_words.len()];
    assert!(counts[0].abs_diff(counts[1]) <= 1, "{counts:?}");
    for seen in [&mut stepped, &mut threaded] {
        seen.app_words.truncate(counts[0].min(counts[1]));
    }
    assert_eq!(stepped.frames.len(), ROUNDS as usize);
    assert_eq!(stepped, threaded);
    let refused = stepped.frames.iter().filter(|frame| frame.is_empty()).count();
    assert_eq!(refused, (0..ROUNDS).filter(|round| round % 7 == 3 || round % 11 == 5).count());
}
