//! A link sends messages one after another at its bandwidth, and each arrives after the latency. A link needs no event
//! of its own. The caller decides what a message carries.

use crate::Picos;

/// One direction of a wire.
#[derive(Clone, Debug)]
pub struct Link {
    bytes_per_s: u64,
    latency: Picos,
    /// The longest wait. A message that would have to wait longer is refused because the buffer is full.
    wait_max: Picos,
    free_at: Picos,
    sending: u128,
}

impl Link {
    /// Makes a link of `bytes_per_s` (zero counts as one). Its buffer holds `buffer_bytes` unsent bytes, or has no
    /// limit.
    pub fn new(bytes_per_s: u64, latency: Picos, buffer_bytes: Option<u64>) -> Self {
        let bytes_per_s = bytes_per_s.max(1);
        let wait_max = buffer_bytes.map_or(Picos::MAX, |bytes| transfer(bytes, bytes_per_s));
        Self { bytes_per_s, latency, wait_max, free_at: Picos(0), sending: 0 }
    }

    /// Sends `bytes` at `now`, which never decreases. Returns the time of their arrival, or none if the buffer is full.
    pub fn send(&mut self, now: Picos, bytes: u64) -> Option<Picos> {
        if self.free_at.since(now) > self.wait_max {
            return None;
        }
        let time = transfer(bytes, self.bytes_per_s);
        self.free_at = self.free_at.max(now) + time;
        self.sending += u128::from(time.0);
        Some(self.free_at + self.latency)
    }

    /// Returns the total time to send all accepted messages (ps).
    pub fn sending_ps(&self) -> u128 {
        self.sending
    }
}

/// Returns the time to send `bytes`, rounded up to the next picosecond.
fn transfer(bytes: u64, bytes_per_s: u64) -> Picos {
    match bytes.checked_mul(PS_PER_S) {
        Some(scaled) => Picos(scaled.div_ceil(bytes_per_s)),
        None => {
            let wide = (u128::from(bytes) * u128::from(PS_PER_S)).div_ceil(u128::from(bytes_per_s));
            Picos(u64::try_from(wide).unwrap_or(u64::MAX))
        }
    }
}

const PS_PER_S: u64 = 1_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_queue_for_the_bandwidth_and_share_the_latency() {
        let mut link = Link::new(1_000_000_000, Picos::nanos(500), None);
        assert_eq!(link.send(Picos(0), 100), Some(Picos::nanos(600)));
        assert_eq!(link.send(Picos::nanos(40), 100), Some(Picos::nanos(700)), "after the first");
        assert_eq!(link.send(Picos::nanos(900), 1), Some(Picos::nanos(1_401)), "idle again");
        assert_eq!(link.sending_ps(), 201_000);
        assert_eq!(transfer(1, 3_000_000_000_000), Picos(1), "rounded up");
        assert_eq!(transfer(1 << 40, 1 << 40), Picos(PS_PER_S));
    }

    #[test]
    fn a_full_buffer_refuses() {
        let mut link = Link::new(1_000_000_000, Picos(0), Some(150));
        assert!(link.send(Picos(0), 100).is_some());
        assert!(link.send(Picos(0), 100).is_some(), "100 of 150 bytes wait");
        assert!(link.send(Picos(0), 1).is_none(), "200 wait");
        assert!(link.send(Picos::nanos(50), 1).is_some(), "150 wait");
    }
}
