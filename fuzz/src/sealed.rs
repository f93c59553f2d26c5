//! Sealed values: whatever the bytes are, only those that were sealed with this secret, for this key and this tenant
//! are opened, and to what was sealed.
use std::task::Waker;

use arbitrary::Arbitrary;
use device::software::Software;
use device::{AssociatedData, Device, Input, Job, Key, Nonce, Outcome, Pool, Task};
use store::frame::{Inspected, KeyId, SealedHeader, inspect, must_wrap};
use units::ByteCount;

const VALUE_BYTES_MAX: usize = 1 << 20;

#[derive(Arbitrary, Debug)]
pub(super) enum Case<'a> {
    /// Any bytes, as they may be in the store.
    Stored { value: &'a [u8], key: &'a [u8], original_bytes_max: u32 },
    /// A sealed value that somebody changes.
    Sealed { form: &'a [u8], of: Owner<'a>, nonce: [u8; 12], change: Change<'a> },
}

/// What a value is bound to.
#[derive(Arbitrary, Clone, Debug, PartialEq)]
pub(super) struct Owner<'a> {
    secret: u8,
    key_id: u16,
    tenant: &'a str,
    key: &'a [u8],
    original_bytes: u16,
}

#[derive(Arbitrary, Debug)]
pub(super) enum Change<'a> {
    None,
    Flip { at: u16, bits: u8 },
    Truncate { bytes: u16 },
    Extend { by: &'a [u8] },
    Replace { at: u16, by: &'a [u8] },
    Move { to: Owner<'a> },
}

pub(super) fn fuzz(case: Case<'_>) {
    match case {
        Case::Stored { value, key, original_bytes_max } => {
            let original_bytes_max = original_bytes_max as usize % VALUE_BYTES_MAX;
            let inspected = inspect(value, original_bytes_max);
            if let Inspected::Sealed { header, body } = inspected {
                assert!(must_wrap(value), "a value that no writer wraps is taken for a sealed one");
                assert!(header.original_bytes as usize <= original_bytes_max);
                assert_eq!(header.encode(), value[..SealedHeader::BYTES], "a header has one encoding");
                assert_eq!(body, SealedHeader::BYTES..value.len());
                assert_eq!(open(value, 1, "", key), None, "nobody sealed this");
            }
        }
        Case::Sealed { form, of, nonce, change } => check(form, &of, nonce, &change),
    }
}

fn check(form: &[u8], of: &Owner<'_>, nonce: [u8; 12], change: &Change<'_>) {
    let (Some(key_id), true) = (KeyId::new(of.key_id), of.tenant.len() <= 255) else { return };
    let header = SealedHeader { key_id, original_bytes: of.original_bytes.into(), nonce };
    let associated = AssociatedData::from(&header.associated_data(of.tenant, of.key)[..]);
    let task = Task::Encrypt { key: secret(of.secret), nonce: Nonce(nonce), associated };
    let body = run(task, form, form.len() + 16).expect("software encrypts everything");
    let sealed = [&header.encode()[..], &body].concat();
    let mut changed = sealed.clone();
    let mut opener = of.clone();
    match *change {
        Change::None => {}
        Change::Flip { at, bits } => {
            let at = at as usize % changed.len();
            changed[at] ^= bits;
        }
        Change::Truncate { bytes } => changed.truncate(bytes as usize),
        Change::Extend { by } => changed.extend_from_slice(by),
        Change::Replace { at, by } => {
            let at = at as usize % changed.len();
            let end = changed.len().min(at + by.len());
            changed[at..end].copy_from_slice(&by[..end - at]);
        }
        Change::Move { ref to } => {
            if to.tenant.len() > 255 {
                return;
            }
            opener = to.clone();
            // These two are part of the value.
            (opener.key_id, opener.original_bytes) = (of.key_id, of.original_bytes);
        }
    }
    let expected = (changed == sealed && opener == *of).then_some(form);
    let opened = open(&changed, opener.secret, opener.tenant, opener.key);
    assert_eq!(opened.as_deref(), expected, "{change:?}");
}

/// Opens a value as a reader with this secret under every id does.
fn open(value: &[u8], number: u8, tenant: &str, key: &[u8]) -> Option<Vec<u8>> {
    let Inspected::Sealed { header, body } = inspect(value, VALUE_BYTES_MAX) else { return None };
    let associated = AssociatedData::from(&header.associated_data(tenant, key)[..]);
    let task = Task::Decrypt { key: secret(number), nonce: Nonce(header.nonce), associated };
    run(task, &value[body.clone()], body.len() - 16)
}

fn secret(number: u8) -> Key {
    Key::new(&[number; 32])
}

/// Runs a job in software. Returns its result, if there is one.
fn run(task: Task, input: &[u8], capacity: usize) -> Option<Vec<u8>> {
    let output = Pool::heap(ByteCount(0)).take(capacity);
    let job = Job::new(task, Input::heap(input.to_vec().into()), output);
    let mut queue = Software::default().open_queue(Waker::noop().clone()).expect("a queue");
    queue.try_submit(Box::new(job)).expect("software does every kernel");
    let mut done = Vec::new();
    queue.poll(&mut done);
    let completion = done.pop().expect("it is done inline");
    match completion.outcome {
        Outcome::Done { output_bytes } => Some(completion.job.output[..output_bytes].to_vec()),
        _ => None,
    }
}
