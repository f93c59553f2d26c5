//! Tests packets of the binary protocol: what is parsed, what is refused and with which answer, and where the next
//! packet begins. memcached's answers to whole packets are compared in `tests/tests/command_table.rs`.

use protocol::Limits;
use protocol::binary::reply::{self, Hit};
use protocol::binary::{Arithmetic, Command, Head, Parse, Refusal, Sasl, Status, Store, parse};
use protocol::command::StoreVerb;
use protocol::counter::Direction;

const OPAQUE: u32 = 0x0102_0304;

/// Returns a packet whose lengths are those of its parts.
fn packet(opcode: u8, extras: &[u8], key: &[u8], value: &[u8], cas: u64) -> Vec<u8> {
    let body = (extras.len() + key.len() + value.len()) as u32;
    claiming(opcode, [extras.len(), key.len(), body as usize], &[extras, key, value].concat(), cas)
}

/// Returns a packet that claims the lengths of its extras, its key and its body.
fn claiming(opcode: u8, [extras, key, body]: [usize; 3], bytes: &[u8], cas: u64) -> Vec<u8> {
    let mut packet = vec![0x80, opcode];
    packet.extend((key as u16).to_be_bytes());
    packet.extend([extras as u8, 0, 0, 0]);
    packet.extend((body as u32).to_be_bytes());
    packet.extend(OPAQUE.to_be_bytes());
    packet.extend(cas.to_be_bytes());
    packet.extend(bytes);
    packet
}

fn parsed(bytes: &[u8]) -> (Command<'_>, Head, usize) {
    match parse(bytes, &Limits::default()) {
        Parse::Packet { packet, consumed } => (packet.command, packet.head, consumed),
        other => panic!("{other:?}"),
    }
}

fn command(bytes: &[u8]) -> Command<'_> {
    parsed(bytes).0
}

fn refused(bytes: &[u8]) -> (Refusal<'_>, usize) {
    match parse(bytes, &Limits::default()) {
        Parse::Refused { refusal, consumed } => (refusal, consumed),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_storage_packet_ends_in_front_of_its_value() {
    let bytes = packet(0x11, &[0, 0, 0, 7, 0, 0, 0, 9], b"k\n", b"value", 0);
    let (command, head, consumed) = parsed(&bytes);
    let expected = Store {
        verb: StoreVerb::Set,
        key: b"k\n",
        client_flags: 7,
        exptime_s: 9,
        value_bytes: 5,
        cas: 0,
    };
    assert_eq!(command, Command::Store(expected));
    assert_eq!(command.value_bytes(), Some(5));
    assert_eq!(&bytes[consumed..], b"value");
    assert_eq!(head, Head { opcode: 0x11, quiet: true, opaque: OPAQUE, ..Head::default() });
}

#[test]
fn a_cas_turns_a_store_into_a_cas() {
    for (opcode, verb) in [(1, StoreVerb::Set), (2, StoreVerb::Add), (3, StoreVerb::Replace)] {
        for (cas, expected) in [(0, verb), (5, StoreVerb::Cas)] {
            let bytes = packet(opcode, &[0; 8], b"k", b"", cas);
            assert!(matches!(command(&bytes), Command::Store(store) if store.verb == expected));
        }
    }
    let bytes = packet(0x0e, &[], b"k", b"v", 5);
    assert!(matches!(command(&bytes), Command::Store(store) if store.verb == StoreVerb::Append));
}

#[test]
fn all_ones_mean_that_no_counter_is_created() {
    let extras = |exptime: u32| {
        [2u64.to_be_bytes(), 3u64.to_be_bytes()].concat().into_iter().chain(exptime.to_be_bytes())
    };
    for (exptime, exptime_s) in [(u32::MAX, None), (0, Some(0)), (60, Some(60)), (1 << 31, Some(0))]
    {
        let extras: Vec<u8> = extras(exptime).collect();
        let bytes = packet(0x06, &extras, b"k", b"", 1);
        let expected = Arithmetic {
            direction: Direction::Decrement,
            key: b"k",
            delta: 2,
            initial: 3,
            exptime_s,
            cas: 1,
        };
        assert_eq!(command(&bytes), Command::Arithmetic(expected));
    }
}

#[test]
fn a_flush_may_have_a_delay() {
    assert_eq!(command(&packet(0x08, &[], b"", b"", 0)), Command::Flush { delay_s: 0 });
    let delayed = packet(0x18, &[0, 0, 1, 0], b"", b"", 0);
    assert_eq!(command(&delayed), Command::Flush { delay_s: 256 });
    let longest = packet(0x08, &[0xff; 4], b"", b"", 0);
    assert_eq!(command(&longest), Command::Flush { delay_s: i32::MAX });
}

#[test]
fn quiet_opcodes_are_those_of_memcached() {
    let quiet =
        [0x09, 0x0d, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1e, 0x24];
    for opcode in 0..=u8::MAX {
        let mut found = Vec::new();
        for extras in [0, 4, 8, 20] {
            for key in [&b""[..], b"k"] {
                let bytes = packet(opcode, &vec![0; extras], key, b"", 0);
                if let Parse::Packet { packet, .. } = parse(&bytes, &Limits::default()) {
                    found.push(packet.head.quiet);
                }
            }
        }
        let known = opcode <= 0x1a || (0x1c..=0x24).contains(&opcode) && opcode != 0x1f;
        assert_eq!(!found.is_empty(), known, "{opcode:#x}");
        assert!(found.iter().all(|is_quiet| *is_quiet == quiet.contains(&opcode)), "{opcode:#x}");
    }
}

#[test]
fn authentication_is_parsed_with_its_message() {
    assert_eq!(command(&packet(0x20, &[], b"", b"", 0)), Command::Sasl(Sasl::ListMechanisms));
    let begin = packet(0x21, &[], b"PLAIN", b"\0u\0p", 0);
    let expected = Sasl::Begin { mechanism: b"PLAIN", value_bytes: 4 };
    assert_eq!(command(&begin), Command::Sasl(expected));
    let long = packet(0x22, &[], b"PLAIN", &[0; 4_097], 0);
    let (refusal, _) = refused(&long);
    assert_eq!((refusal.status, refusal.swallow_bytes), (Status::UnknownCommand, 4_097));
}

#[test]
fn wrong_lengths_close_the_connection() {
    let key = b"k";
    for bytes in [
        packet(0x00, &[], b"", b"", 0),
        packet(0x00, &[0], key, b"", 0),
        packet(0x00, &[], key, b"value", 0),
        packet(0x01, &[0; 7], key, b"", 0),
        packet(0x01, &[0; 8], b"", b"", 0),
        packet(0x04, &[], key, b"value", 0),
        packet(0x05, &[0; 19], key, b"", 0),
        packet(0x07, &[], key, b"", 0),
        packet(0x08, &[0; 3], b"", b"", 0),
        packet(0x0a, &[], b"", b"value", 0),
        packet(0x0e, &[0], key, b"", 0),
        packet(0x10, &[0], key, b"", 0),
        packet(0x1c, &[], key, b"", 0),
        packet(0x21, &[], b"", b"", 0),
        packet(0x00, &[], &[b'k'; 251], b"", 0),
    ] {
        let (refusal, consumed) = refused(&bytes);
        assert_eq!((refusal.status, refusal.close), (Status::InvalidArguments, true));
        assert_eq!(consumed, bytes.len());
        assert_eq!(refusal.head.opaque, OPAQUE);
    }
    for lengths in [[0, 2, 1], [4, 1, 4]] {
        let bytes = claiming(0x00, lengths, b"kkkkk", 0);
        let (refusal, _) = refused(&bytes);
        assert_eq!((refusal.status, refusal.close), (Status::UnknownCommand, true));
    }
}

#[test]
fn an_unknown_packet_is_skipped() {
    let bytes = packet(0x1b, &[0; 4], b"key", b"value", 0);
    let (refusal, consumed) = refused(&bytes);
    assert_eq!((refusal.status, refusal.close), (Status::UnknownCommand, false));
    assert_eq!(consumed as u64 + refusal.swallow_bytes, bytes.len() as u64);
}

#[test]
fn a_value_above_the_limit_is_skipped() {
    let most = 1 << 20;
    for (opcode, extras, unlink) in [(0x01, 8, Some(&b"k"[..])), (0x02, 8, None), (0x0e, 0, None)] {
        let bytes = claiming(
            opcode,
            [extras, 1, extras + 1 + most],
            &[&[0; 8][..extras], b"k"].concat(),
            0,
        );
        let (refusal, consumed) = refused(&bytes);
        assert_eq!((refusal.status, refusal.close), (Status::TooLarge, false));
        assert_eq!((refusal.swallow_bytes, refusal.unlink), (most as u64, unlink));
        assert_eq!(consumed, bytes.len());
    }
}

#[test]
fn other_bytes_than_packets_close_the_connection() {
    for bytes in [&b"get a\r\n"[..], b"\x81", b"\0"] {
        let (refusal, consumed) = refused(bytes);
        assert_eq!((refusal.status, refusal.close), (Status::BadMagic, true));
        assert_eq!(consumed, bytes.len());
    }
}

#[test]
fn every_beginning_of_a_packet_is_incomplete() {
    let bytes = packet(0x01, &[0; 8], b"key", b"value", 0);
    for length in 0..24 + 8 + 3 {
        assert_eq!(parse(&bytes[..length], &Limits::default()), Parse::Incomplete, "{length}");
    }
}

#[test]
fn a_hit_has_flags_and_perhaps_its_key() {
    let head = Head { opcode: 0x0d, quiet: true, opaque: OPAQUE, ..Head::default() };
    let mut out = Vec::new();
    let item = Hit { key: Some(b"key"), client_flags: 5, cas: 6, value_bytes: 7 };
    reply::hit(&mut out, head, &item);
    let expected = [
        &[0x81, 0x0d, 0, 3, 4, 0, 0, 0, 0, 0, 0, 14, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 6][..],
        &[0, 0, 0, 5],
        b"key",
    ];
    assert_eq!(out, expected.concat());
}

#[test]
fn quiet_packets_are_answered_only_by_hits_and_errors() {
    let head = Head { opcode: 0, quiet: true, opaque: OPAQUE, ..Head::default() };
    let mut out = Vec::new();
    reply::done(&mut out, head, 1);
    reply::number(&mut out, head, 1, 1);
    reply::miss(&mut out, head, None);
    reply::miss(&mut out, head, Some(b"key"));
    assert!(out.is_empty());
    reply::refused(&mut out, head, Status::Exists);
    assert_eq!(&out[24..], b"Data exists for key.");
}
