//! Runs the ring in every order of its two threads' steps with at most three preemptions. It compiles the same file
//! against a model of threads and memory. The model knows what each thread may see and which thread may access a
//! cell. Orders with more preemptions are not tried.

#[path = "ring.rs"]
#[allow(dead_code, unreachable_pub, clippy::duplicate_mod)]
mod ring;

use loom::thread;

use ring::channel;

/// The model's counterpart of `super::primitives`.
mod primitives {
    pub(super) use loom::cell::UnsafeCell;
    pub(super) use loom::sync::Arc;
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU64};
}

/// Tries all orders with at most a fixed number of preemptions, because all orders would take too long.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn every_message_arrives_once_and_in_order() {
    check(|| {
        let (mut sender, mut receiver) = channel(2);
        let writer = thread::spawn(move || {
            for number in 0..3 {
                let mut message = Box::new(number);
                while let Err(back) = sender.push(message) {
                    message = back;
                    thread::yield_now();
                }
            }
        });
        for number in 0..3 {
            let message = loop {
                match receiver.pop() {
                    Some(message) => break message,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(message, Box::new(number));
        }
        writer.join().expect("it ends");
        assert!(receiver.pop().is_none());
    });
}

#[test]
fn unread_messages_are_dropped_once() {
    check(|| {
        let value = loom::sync::Arc::new(());
        let (mut sender, mut receiver) = channel(2);
        let shared = value.clone();
        let writer = thread::spawn(move || {
            for _ in 0..2 {
                // There is a slot for each message, whether or not the receiver still exists.
                assert!(sender.push(shared.clone()).is_ok());
            }
        });
        drop(receiver.pop());
        drop(receiver);
        writer.join().expect("it ends");
        // The model reports leaks.
        drop(value);
    });
}
