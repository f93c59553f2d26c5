//! The contract of the kernels other than codecs. The checks cover published answers, round trips, damaged
//! input and small outputs. They also check that a result reveals nothing of earlier jobs of the device or
//! earlier content of the buffer. Kernels that a device does not advertise are not tested.

use bytes::Bytes;

use super::harness::Harness;
use super::payload::Payload;
use super::{bound, expect_invalid, streams};
use crate::cipher::{AssociatedData, KEY_BYTES, Key, NONCE_BYTES, Nonce, TAG_BYTES};
use crate::codec::{Codec, Dialect, Level};
use crate::function::{Function, FunctionKind};
use crate::job::{Outcome, Polynomial, Task, TenantId};
use crate::kernels::Kernel;
use crate::queue::Device;

/// Checks the kernels against published test vectors: test cases 13 to 16 of McGrew and Viega for AES-GCM,
/// RFC 3720 (B.4) for CRC-32C, and the catalogue's check value for CRC-64/XZ.
pub fn gives_the_published_answers(device: &dyn Device) {
    let mut harness = Harness::open(device);
    for (task, input, answer) in published() {
        if device.capabilities().accepts(&task, input.len()) {
            assert_eq!(harness.run_ok(&task, &input, answer.len()), answer, "{task:?}");
        }
        if let Some(task) = undo(&task)
            && device.capabilities().accepts(&task, answer.len())
        {
            assert_eq!(harness.run_ok(&task, &answer, input.len()), input);
        }
    }
}

/// Runs every kernel at several sizes, with exactly enough and with more output space, behind header space.
/// The rest of the buffer must stay unchanged. Checksums must equal those of a bit-by-bit calculation.
pub fn runs_every_kernel_at_every_size(device: &dyn Device) {
    let mut harness = Harness::open(device);
    for bytes in SIZES {
        let input = Bytes::from(Payload::Text.bytes(bytes, bytes as u64));
        for task in tasks(device, bytes) {
            // A function's result has its own memory.
            let is_function = matches!(task, Task::Function(_));
            let exact = task.output_bytes(bytes).unwrap_or(bytes);
            for capacity in [exact, exact + 100] {
                let result = harness.run_ok(&task, &input, capacity);
                assert!(is_function || result.len() == exact, "{task:?} of {bytes}");
                check(&task, &input, &result);
                if let Some(task) = undo(&task)
                    && device.capabilities().accepts(&task, exact)
                {
                    assert_eq!(harness.run_ok(&task, &result, capacity), input);
                }
            }
        }
    }
}

/// Checks a ciphertext against the CPU's kernel, a checksum bit by bit, and a copy against its input.
pub(super) fn check(task: &Task, input: &Bytes, result: &Bytes) {
    match task {
        Task::Encrypt { .. } => assert_eq!(result, &sealed(task, input)),
        Task::Checksum { polynomial: Polynomial::Crc32c } => {
            assert_eq!(result[..], (reflected_crc(0x82F6_3B78, 32, input) as u32).to_le_bytes());
        }
        Task::Checksum { polynomial: Polynomial::Crc64 } => {
            assert_eq!(result[..], reflected_crc(0xC96C_5795_D787_0F42, 64, input).to_le_bytes());
        }
        Task::Copy => assert!(result == input),
        Task::Function(function) => assert_eq!(Ok(result), function.apply(input).as_ref()),
        Task::Compress { .. } | Task::Decompress { .. } | Task::Decrypt { .. } => {
            panic!("{task:?} is not checked here");
        }
    }
}

/// Checks that ciphertext with a changed bit, a wrong key, a wrong nonce or too few bytes gives the caller's
/// error and leaves no plaintext in the output.
pub fn refuses_tampered_ciphertext(device: &dyn Device) {
    let mut harness = Harness::open(device);
    for bytes in [0, 1, 16, 1_000] {
        let (key, nonce, owner) = (key(1), nonce(1), AssociatedData::from(&b"owner"[..]));
        let seal = Task::Encrypt { key: key.clone(), nonce, associated: owner.clone() };
        let open = Task::Decrypt { key: key.clone(), nonce, associated: owner.clone() };
        let input = Bytes::from(Payload::Text.bytes(bytes, 1));
        let sealed = sealed(&seal, &input);
        if !device.capabilities().accepts(&open, sealed.len()) {
            return;
        }
        let bits = sealed.len() * 8;
        for bit in (0..bits).filter(|bit| bits - bit <= TAG_BYTES * 8 || bit % 97 == 0) {
            let mut damaged = sealed.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            expect_nothing(&mut harness, &open, damaged.into(), &input);
        }
        for kept in [0, 1, TAG_BYTES - 1, sealed.len() - 1] {
            expect_nothing(&mut harness, &open, sealed.slice(..kept), &input);
        }
        let others = [
            (self::key(2), nonce, owner.clone()),
            (key.clone(), self::nonce(2), owner),
            (key.clone(), nonce, AssociatedData::NONE),
            (key.clone(), nonce, AssociatedData::from(&b"ownes"[..])),
            (key.clone(), nonce, AssociatedData::from(&b"owner "[..])),
        ];
        for (key, nonce, associated) in others {
            let task = Task::Decrypt { key, nonce, associated };
            expect_nothing(&mut harness, &task, sealed.clone(), &input);
        }
        assert_eq!(harness.run_ok(&open, &sealed, bytes), input, "opens after errors");
    }
}

fn expect_nothing(harness: &mut Harness, task: &Task, sealed: Bytes, original: &[u8]) {
    let (outcome, mut job) = harness.run(task, &sealed, original.len());
    expect_invalid(outcome, sealed.len());
    let secret = original.get(..TAG_BYTES).unwrap_or(b"nothing to look for");
    let shown = job.output.space().windows(secret.len()).any(|window| window == secret);
    assert!(!shown, "plaintext that failed its tag is in the output");
}

/// Checks that each kernel returns the caller's error if the output space is too small.
pub fn says_that_the_output_is_too_small(device: &dyn Device) {
    let mut harness = Harness::open(device);
    for bytes in [1, 4_096] {
        let input = Bytes::from(Payload::Text.bytes(bytes, 6));
        for task in tasks(device, bytes) {
            // A function's result has its own memory.
            let Some(exact) = task.output_bytes(bytes) else { continue };
            for capacity in [0, exact - 1] {
                expect_invalid(harness.run(&task, &input, capacity).0, capacity);
            }
            let sealed = harness.run_ok(&task, &input, exact);
            if let Some(task) = undo(&task)
                && device.capabilities().accepts(&task, exact)
            {
                expect_invalid(harness.run(&task, &sealed, bytes - 1).0, bytes);
            }
        }
    }
}

/// Checks that a result reveals nothing of another tenant's earlier job, neither from the device nor from the
/// buffer. This includes damaged streams, which may make a decompressor read output bytes that it has not
/// written.
pub fn keeps_nothing_of_another_tenants_job(device: &dyn Device) {
    let input = Bytes::from(Payload::Text.bytes(3_000, 7));
    let others = [Payload::Random, Payload::Text].map(|class| Bytes::from(class.bytes(9_000, 8)));
    let (mut fresh, mut used) = (Harness::open(device), Harness::open(device));
    (fresh.tenant, used.fill) = (TenantId(1), 0x3C);
    for task in all_tasks(device, &input) {
        used.tenant = TenantId(2);
        for other in &others {
            used.run(&task, other, bound(other.len()));
        }
        used.tenant = TenantId(1);
        let (first, second) = (
            fresh.run_ok(&task, &input, bound(input.len())),
            used.run_ok(&task, &input, bound(input.len())),
        );
        assert!(first == second, "{task:?} depends on what was done before");
    }
    for (dialect, original, stream) in streams(device) {
        let task = Task::Decompress { dialect, original_bytes: original.len() };
        let bits = stream.len() * 8;
        let step = (bits / 500).max(1);
        for bit in (0..bits.min(400)).chain((400..bits).step_by(step)) {
            let mut damaged = stream.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            expect_same(&mut fresh, &mut used, &task, damaged.into());
        }
        for seed in 0..200 {
            let garbage = Payload::Random.bytes(1 + seed as usize * 3, !seed);
            expect_same(&mut fresh, &mut used, &task, garbage.into());
        }
    }
    for (task, stream) in back_references() {
        if device.capabilities().accepts(&task, 14) {
            expect_same(&mut fresh, &mut used, &task, Bytes::from_static(stream));
        }
    }
}

fn expect_same(fresh: &mut Harness, used: &mut Harness, task: &Task, stream: Bytes) {
    let Task::Decompress { original_bytes, .. } = task else { panic!("{task:?} has no stream") };
    let (first, one) = fresh.run(task, &stream, *original_bytes);
    let (second, two) = used.run(task, &stream, *original_bytes);
    match (&first, &second) {
        (Outcome::Done { output_bytes }, Outcome::Done { .. }) => {
            assert_eq!(first, second, "{task:?}");
            let (one, two) = (&one.output[one.output_offset..], &two.output[two.output_offset..]);
            assert!(one == two, "{task:?}: {output_bytes} bytes show what was in the buffer");
        }
        _ => {
            expect_invalid(first, stream.len());
            expect_invalid(second, stream.len());
        }
    }
}

/// Returns streams whose matches begin in front of the output or have a distance of zero.
fn back_references() -> [(Task, &'static [u8]); 3] {
    let read =
        |codec, original_bytes| Task::Decompress { dialect: Dialect::new(codec), original_bytes };
    [
        // The stream has one literal, eight bytes from a distance of 0, and five literals that end the block.
        (read(Codec::Lz4, 14), b"\x14a\x00\x00\x50bcdef"),
        // The stream has the same elements with a distance of 9, which is in front of the output.
        (read(Codec::Lz4, 14), b"\x14a\x09\x00\x50bcdef"),
        // The stream is a fixed block that begins with a match: three bytes from a distance of one.
        (read(Codec::Deflate, 3), b"\x03\x02\x00\x00"),
    ]
}

/// Returns a task for each kernel that accepts an input of this size. Decryption is not among them, because it needs
/// an encrypted input.
pub(super) fn tasks(device: &dyn Device, bytes: usize) -> Vec<Task> {
    let accepted = |task: &Task| device.capabilities().accepts(task, bytes);
    every_kernel().into_iter().filter(accepted).collect()
}

/// Returns one task per kernel, including kernels that a device may lack.
pub(super) fn every_kernel() -> [Task; Kernel::ALL.len()] {
    let [serialize, deserialize, rpc, load_balance] = FunctionKind::ALL.map(shifted);
    [
        Task::Encrypt { key: key(1), nonce: nonce(1), associated: AssociatedData::NONE },
        Task::Checksum { polynomial: Polynomial::Crc32c },
        Task::Checksum { polynomial: Polynomial::Crc64 },
        Task::Copy,
        serialize,
        deserialize,
        rpc,
        load_balance,
    ]
}

/// Returns a function of this kind, which gives a header and the bytes, each higher by one.
fn shifted(kind: FunctionKind) -> Task {
    Task::Function(Function::new(kind, |input| {
        let bytes = input.iter().map(|byte| byte.wrapping_add(1));
        Ok(b"shifted:".iter().copied().chain(bytes).collect())
    }))
}

fn all_tasks(device: &dyn Device, input: &Bytes) -> Vec<Task> {
    let dialects = device.capabilities().writes.clone();
    let compress = |dialect| Task::Compress { dialect, level: Level::Default };
    let mut tasks = tasks(device, input.len());
    tasks.extend(dialects.into_iter().map(compress));
    tasks
}

fn sealed(task: &Task, input: &[u8]) -> Bytes {
    let Task::Encrypt { key, nonce, associated } = task else {
        panic!("{task:?} encrypts nothing")
    };
    let mut space = vec![0; input.len() + TAG_BYTES];
    crate::kernels::encrypt(key, *nonce, associated, input, &mut space).expect("room");
    space.into()
}

/// Returns the task that decrypts what `task` encrypts. Returns none for any other task.
fn undo(task: &Task) -> Option<Task> {
    let Task::Encrypt { key, nonce, associated } = task else { return None };
    let (key, associated) = (key.clone(), associated.clone());
    Some(Task::Decrypt { key, nonce: *nonce, associated })
}

/// Returns a task that encrypts, and the task that decrypts what it encrypts.
pub(super) fn ciphers() -> (Task, Task) {
    let associated = AssociatedData::from(&b"owner"[..]);
    let encrypt = Task::Encrypt { key: key(3), nonce: nonce(3), associated };
    let decrypt = undo(&encrypt).expect("it is an encryption");
    (encrypt, decrypt)
}

fn key(seed: u8) -> Key {
    Key::new(&std::array::from_fn::<u8, KEY_BYTES, _>(|index| seed ^ index as u8))
}

fn nonce(seed: u8) -> Nonce {
    Nonce([seed; NONCE_BYTES])
}

/// Computes a reflected CRC bit by bit. The initial value is all ones, and the result is inverted.
fn reflected_crc(polynomial: u64, width: u32, bytes: &[u8]) -> u64 {
    let ones = u64::MAX >> (64 - width);
    let step = |crc: u64| (crc >> 1) ^ if crc & 1 == 1 { polynomial } else { 0 };
    let of_byte = |crc: u64, byte: &u8| (0..8).fold(crc ^ u64::from(*byte), |crc, _| step(crc));
    bytes.iter().fold(ones, of_byte) ^ ones
}

fn published() -> Vec<(Task, Bytes, Bytes)> {
    let ascending: Vec<u8> = (0..32).collect();
    let descending: Vec<u8> = (0..32).rev().collect();
    let crc32c = |input: Vec<u8>, answer: u32| {
        let task = Task::Checksum { polynomial: Polynomial::Crc32c };
        (task, Bytes::from(input), Bytes::copy_from_slice(&answer.to_le_bytes()))
    };
    let crc64 = |input: &'static [u8], answer: u64| {
        let task = Task::Checksum { polynomial: Polynomial::Crc64 };
        (task, Bytes::from_static(input), Bytes::copy_from_slice(&answer.to_le_bytes()))
    };
    let mut all = vec![
        crc32c(vec![0; 32], 0x8A91_36AA),
        crc32c(vec![0xFF; 32], 0x62A8_AB43),
        crc32c(ascending, 0x46DD_794E),
        crc32c(descending, 0x113F_DB5C),
        crc32c(hex(ISCSI_READ), 0xD996_3A56),
        crc32c(b"123456789".to_vec(), 0xE306_9283),
        crc32c(Vec::new(), 0),
        crc64(b"123456789", 0x995D_C9BB_DF19_39FA),
        crc64(b"", 0),
    ];
    all.extend(GCM.map(|[key, nonce, associated, input, answer]| {
        let key = Key::new(&hex(key).try_into().expect("256 bits"));
        let nonce = Nonce(hex(nonce).try_into().expect("96 bits"));
        let associated = AssociatedData::from(&hex(associated)[..]);
        (Task::Encrypt { key, nonce, associated }, hex(input).into(), hex(answer).into())
    }));
    all
}

fn hex(digits: &str) -> Vec<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("a hexadecimal digit") as u8;
    let pairs = digits.as_bytes().chunks_exact(2);
    pairs.map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// AES-GCM test cases, each with key, nonce, associated data, plaintext, and the ciphertext followed by its tag
/// (hexadecimal).
const GCM: [[&str; 5]; 4] = [
    [ZERO_KEY, ZERO_NONCE, "", "", "530f8afbc74536b9a963b4f1c4cb738b"],
    [
        ZERO_KEY,
        ZERO_NONCE,
        "",
        "00000000000000000000000000000000",
        "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919",
    ],
    [
        "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
        "cafebabefacedbaddecaf888",
        "",
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
         1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255",
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa\
         8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad\
         b094dac5d93471bdec1a502270e3cc6c",
    ],
    [
        "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
        "cafebabefacedbaddecaf888",
        "feedfacedeadbeeffeedfacedeadbeefabaddad2",
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
         1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa\
         8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662\
         76fc6ece0f4e1768cddf8853bb2d551b",
    ],
];

const ZERO_KEY: &str = "0000000000000000000000000000000000000000000000000000000000000000";
const ZERO_NONCE: &str = "000000000000000000000000";

/// The SCSI Read (10) command of RFC 3720, B.4 (hexadecimal).
const ISCSI_READ: &str = "01c00000000000000000000000000000140000000000040000000014000000182\
                          8000000000000000200000000000000";

/// Sizes on both sides of the limits of vector kernels, and a large size.
const SIZES: [usize; 14] = [0, 1, 2, 15, 16, 17, 63, 64, 65, 255, 4_095, 4_096, 65_537, 300_000];
