//! GHASH (NIST SP 800-38D) with Shoup's tables: 256 multiples for each key, and one table for the bits that are shifted
//! out. It processes one byte at a time.

/// A key's multiples.
pub(crate) struct Ghash {
    multiples: Box<[u128; 256]>,
}

impl Ghash {
    /// Computes the multiples of a hash key. The first bit of a block is its highest bit.
    pub(crate) fn new(key: u128) -> Self {
        let mut multiples = Box::new([0u128; 256]);
        let mut power = key;
        for bit in (0..8).rev() {
            multiples[1 << bit] = power;
            power = times_x(power);
        }
        for index in 1..256usize {
            let low = index & index.wrapping_neg();
            multiples[index] = multiples[low] ^ multiples[index ^ low];
        }
        Self { multiples }
    }

    /// Hashes a message without associated data: first its blocks, with the last block filled up with zeros, and then
    /// its length.
    pub(crate) fn hash(&self, message: &[u8]) -> u128 {
        let mut state = 0;
        for block in message.chunks(16) {
            let mut full = [0; 16];
            full[..block.len()].copy_from_slice(block);
            state = self.multiply(state ^ u128::from_be_bytes(full));
        }
        self.multiply(state ^ (8 * message.len() as u128))
    }

    /// Multiplies `value` by the hash key with Horner's rule, from the last byte to the first.
    fn multiply(&self, value: u128) -> u128 {
        let bytes = value.to_be_bytes();
        let mut product = self.multiples[usize::from(bytes[15])];
        for byte in bytes[..15].iter().rev() {
            let out = (product & 0xFF) as usize;
            product = (product >> 8) ^ REDUCED[out] ^ self.multiples[usize::from(*byte)];
        }
        product
    }
}

/// Multiplies by x. The highest bit of a block is its first.
const fn times_x(value: u128) -> u128 {
    (value >> 1) ^ ((0xE1 << 120) & 0u128.wrapping_sub(value & 1))
}

/// Returns, for each byte that is shifted out, the value that replaces it.
const fn reduced() -> [u128; 256] {
    let mut table = [0u128; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u128;
        let mut bit = 0;
        while bit < 8 {
            value = times_x(value);
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
}

static REDUCED: [u128; 256] = reduced();
