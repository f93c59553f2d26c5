//! Plants mutations of sealed values in memcached, as somebody can who writes to it. None of them may be served.

use std::collections::BTreeMap;

use rebate_tests::payload::payload;
use rebate_tests::{Client, Server};
use units::Prng;

use crate::{CLOSED, Frontend, Keys};

/// The number of mutations that are planted.
const MUTATIONS: usize = 100_000;

/// The number of values. One mutation of each is planted at once.
const VALUES: usize = 40;

fn key(index: usize) -> String {
    format!("key:{index:03}")
}

fn value(index: usize) -> Vec<u8> {
    let class = ["text", "random", "same", "digits"][index % 4];
    let lengths = [1, 2, 20, 100, 500, 3_000, 20_000];
    payload(class, lengths[index % lengths.len()]).expect("a known class")
}

/// Sealed values of one writer, by the index of their keys.
fn sealed_by(writer: &Frontend, direct: &mut Client) -> Vec<Vec<u8>> {
    let mut client = writer.server.client();
    (0..VALUES)
        .map(|index| {
            assert_eq!(client.set(&key(index), &value(index)).as_deref(), Ok("STORED"));
            direct.get(&key(index)).expect("an answer").expect("it is there")
        })
        .collect()
}

/// Values that readers cannot open anywhere, besides those that are mutated.
struct Sources {
    ours: Vec<Vec<u8>>,
    tenant: Vec<Vec<u8>>,
    retired: Vec<Vec<u8>>,
    /// Sealed with another secret under the id of our key.
    stranger: Vec<Vec<u8>>,
    /// Frames without a seal.
    frames: Vec<Vec<u8>>,
}

impl Sources {
    /// Returns a mutation for the key with this index, and what it is.
    fn mutation(&self, index: usize, prng: &mut Prng) -> (&'static str, Vec<u8>) {
        let mut below = |bound: usize| prng.below(bound as u64) as usize;
        let mut bytes = self.ours[index].clone();
        let what = match below(10) {
            0 | 1 => {
                let at = below(bytes.len() * 8);
                bytes[at / 8] ^= 1 << (at % 8);
                "one flipped bit"
            }
            2 => {
                for _ in 0..2 + below(8) {
                    let at = below(bytes.len());
                    bytes[at] ^= 1 + below(255) as u8;
                }
                "several changed bytes"
            }
            3 => {
                bytes.truncate(below(bytes.len()));
                "a cut end"
            }
            4 => {
                bytes.drain(..1 + below(bytes.len() - 1));
                "a cut start"
            }
            5 => {
                let other = &self.ours[(index + 1 + below(VALUES - 1)) % VALUES];
                // Values of two keys, or the parts of both that a seal does not tell apart by their lengths.
                match below(2) {
                    0 => bytes.clone_from(other),
                    _ => {
                        let at = below(bytes.len().min(other.len()));
                        bytes.splice(at.., other[at..].iter().copied());
                    }
                }
                "another key's value"
            }
            6 => {
                bytes.clone_from(&self.tenant[index]);
                "another tenant's value"
            }
            7 => {
                bytes.clone_from(&self.retired[index]);
                "a value of a retired key"
            }
            8 => {
                bytes.clone_from(&self.stranger[index]);
                "a value of another secret"
            }
            _ => match below(3) {
                0 => {
                    bytes.clone_from(&self.frames[index]);
                    "a frame without a seal"
                }
                1 => {
                    bytes.extend((0..1 + below(30)).map(|_| below(256) as u8));
                    "bytes behind the tag"
                }
                _ => {
                    bytes = (0..below(300)).map(|_| below(256) as u8).collect();
                    "random bytes"
                }
            },
        };
        (what, bytes)
    }
}

/// Stores the bytes past Rebate.
fn plant(direct: &mut Client, planted: &[(usize, &'static str, Vec<u8>)]) {
    let mut sent = Vec::new();
    for (index, _, bytes) in planted {
        sent.extend(format!("ms {} {} q\r\n", key(*index), bytes.len()).into_bytes());
        sent.extend_from_slice(bytes);
        sent.extend_from_slice(b"\r\n");
    }
    assert_eq!(direct.exchange(&sent).text(), "", "memcached stores all of them");
}

#[test]
fn no_mutation_of_a_sealed_value_is_served() {
    let store = Server::memcached(&[]);
    let (ours, theirs) = (Keys::new(2, &[1, 2]), Keys::new(2, &[2]));
    theirs.write_text(
        "active = 2\n[[key]]\nid = 2\nsecret = \"ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=\"\n",
    );
    let retired = Keys::new(1, &[1, 2]);
    let tenant = ["--set", "values.tenant=others"];
    let mut direct = store.client();
    let framing = Frontend::start(&store.as_store(), &ours, "compress", &["--frame-version", "2"]);
    let sources = Sources {
        tenant: sealed_by(&Frontend::sealing(&store, &ours, &tenant), &mut direct),
        retired: sealed_by(&Frontend::sealing(&store, &retired, &[]), &mut direct),
        stranger: sealed_by(&Frontend::sealing(&store, &theirs, &[]), &mut direct),
        frames: sealed_by(&framing, &mut direct),
        ours: sealed_by(&Frontend::sealing(&store, &ours, &[]), &mut direct),
    };
    ours.write(2, &[2]);
    let reader = Frontend::sealing(&store, &ours, &CLOSED);
    let mut client = reader.server.client();
    let mut prng = Prng::new(17);
    let mut kinds = BTreeMap::<&str, usize>::new();
    let mut done = 0;
    while done < MUTATIONS {
        let mut planted = Vec::new();
        for index in 0..VALUES {
            let (what, bytes) = sources.mutation(index, &mut prng);
            if bytes == sources.ours[index] {
                continue;
            }
            *kinds.entry(what).or_default() += 1;
            planted.push((index, what, bytes));
        }
        plant(&mut direct, &planted);
        let keys: Vec<String> = planted.iter().map(|(index, _, _)| key(*index)).collect();
        let get = match done % 3 {
            0 => format!("get {}", keys.join(" ")),
            1 => format!("gets {}", keys.join(" ")),
            _ => format!("gat 0 {}", keys.join(" ")),
        };
        let answer = client.ask(get.as_bytes()).text();
        if answer != "END\r\n" {
            let served = planted.iter().find(|(index, _, _)| answer.contains(&key(*index)));
            panic!("served: {:?} in {:.300}", served.map(|(_, what, _)| what), answer);
        }
        done += planted.len();
    }
    assert!(kinds.values().all(|count| *count > 1_000), "{kinds:?}");
    for kind in ["seal_wrong", "seal_invalid", "seal_key_unknown", "unsealed_refused"] {
        assert!(reader.misses(kind) > 1_000.0, "{kind}: {}", reader.misses(kind));
    }
    // A changed length may be above the limit, and a changed magic may be that of a frame.
    let kinds = [
        "seal_wrong",
        "seal_invalid",
        "seal_key_unknown",
        "unsealed_refused",
        "invalid",
        "corrupt",
    ];
    let counted: f64 = kinds.iter().map(|kind| reader.misses(kind)).sum();
    assert!(counted >= done as f64, "{counted} of {done} are counted");
    // What was not touched is served as before.
    for (index, bytes) in sources.ours.iter().enumerate() {
        assert_eq!(direct.set(&key(index), bytes).as_deref(), Ok("STORED"));
        assert_eq!(client.get(&key(index)), Ok(Some(value(index))), "{index}");
    }
}
