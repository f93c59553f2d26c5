//! Tests traces. Any bytes must be a trace or be refused, and accepted bytes must encode to the same bytes. This also
//! holds for an existing trace with flipped bits. Any text must be read or refused, and formatting must change only its
//! layout.

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use trace::{Catalog, Head, accelflow, compile, draft, explain, format, read};

#[derive(Arbitrary, Debug)]
pub(super) enum Input<'a> {
    Bytes(&'a [u8]),
    Flipped { trace: u8, tenant: u16, mark: u8, bits: Vec<u16> },
    Text(&'a str),
}

pub(super) fn fuzz(input: Input<'_>) {
    match input {
        Input::Bytes(bytes) => check_bytes(bytes),
        Input::Flipped { trace, tenant, mark, bits } => {
            let traces = CATALOG.traces();
            let trace = &traces[usize::from(trace) % traces.len()];
            let mark = (usize::from(mark) % trace.invocations()) as u8;
            let head = Head { tenant, mark };
            let mut bytes = CATALOG.encode(&trace.name, head).expect("its own trace");
            assert_eq!(CATALOG.decode(&trace.name, &bytes), Ok((trace.clone(), head)));
            for bit in bits.iter().take(8) {
                let bit = usize::from(*bit) % (bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            check_bytes(&bytes);
        }
        Input::Text(text) => check_text(text),
    }
}

fn check_bytes(bytes: &[u8]) {
    let Ok((decoded, head)) = CATALOG.decode("decoded", bytes) else { return };
    assert!(compile(&decoded).len() >= decoded.invocations());
    // A catalog also refuses errors that one trace alone does not show: a cycle of tails.
    let Ok(catalog) = CATALOG.clone().into_draft().trace(decoded).check() else { return };
    assert_eq!(catalog.encode("decoded", head).as_deref(), Ok(bytes));
}

fn check_text(text: &str) {
    if let Ok(once) = format("t", text) {
        assert_eq!(format("t", &once).as_ref(), Ok(&once), "formatting settles at once");
        assert_eq!(draft("t", &once), draft("t", text), "formatting changes no meaning");
    }
    if let Ok(catalog) = read(&[("t", text)]) {
        for trace in catalog.traces() {
            let bytes = catalog.encode(&trace.name, Head::default()).expect("its own trace");
            let decoded = catalog.decode(&trace.name, &bytes);
            assert_eq!(decoded, Ok((trace.clone(), Head::default())));
            assert!(!explain(&catalog, trace).is_empty());
        }
    }
}

static CATALOG: LazyLock<Catalog> = LazyLock::new(accelflow);
