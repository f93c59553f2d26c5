//! AES-256 with tables (FIPS 197). It has four tables of 1 KiB and makes one look-up per byte and round, as on
//! processors without AES instructions. It only encrypts blocks, which is all that counter mode needs. The entries that
//! it reads depend on the key, so an attacker on the same processor can learn the key. For this reason, libraries that
//! choose an implementation at run time use bit-sliced code instead of such tables.

/// An expanded key.
pub(crate) struct Aes256 {
    /// The words of the round keys, four for each round.
    words: [[u32; 4]; ROUNDS + 1],
}

impl Aes256 {
    /// Expands the key.
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        let mut words = [0u32; 4 * (ROUNDS + 1)];
        for (word, bytes) in words.iter_mut().zip(key.chunks_exact(4)) {
            *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        let mut round_constant = 1u8;
        for index in KEY_WORDS..words.len() {
            let mut word = words[index - 1];
            match index % KEY_WORDS {
                0 => {
                    word = substitute(word.rotate_left(8)) ^ u32::from(round_constant) << 24;
                    round_constant = double(round_constant);
                }
                4 => word = substitute(word),
                _ => {}
            }
            words[index] = words[index - KEY_WORDS] ^ word;
        }
        let round = |index: usize| std::array::from_fn(|word| words[4 * index + word]);
        Self { words: std::array::from_fn(round) }
    }

    /// Encrypts one block of four words.
    pub(crate) fn encrypt(&self, block: [u32; 4]) -> [u32; 4] {
        let mut state: [u32; 4] = std::array::from_fn(|word| block[word] ^ self.words[0][word]);
        for key in &self.words[1..ROUNDS] {
            state = std::array::from_fn(|word| {
                let at = |row: usize| byte(state[(word + row) % 4], row);
                TABLES[0][at(0)]
                    ^ TABLES[1][at(1)]
                    ^ TABLES[2][at(2)]
                    ^ TABLES[3][at(3)]
                    ^ key[word]
            });
        }
        std::array::from_fn(|word| {
            let at = |row: usize| SBOX[byte(state[(word + row) % 4], row)];
            u32::from_be_bytes([at(0), at(1), at(2), at(3)]) ^ self.words[ROUNDS][word]
        })
    }
}

/// Returns byte `row` of a word. Byte 0 is the most significant byte.
const fn byte(word: u32, row: usize) -> usize {
    (word >> (24 - 8 * row)) as usize & 0xFF
}

fn substitute(word: u32) -> u32 {
    u32::from_be_bytes(word.to_be_bytes().map(|byte| SBOX[byte as usize]))
}

/// Multiplies by x in the finite field of AES.
const fn double(value: u8) -> u8 {
    (value << 1) ^ (0x1B & 0u8.wrapping_sub(value >> 7))
}

/// Computes the S-box. It steps through the powers of x + 1 and, at the same time, through the powers of its inverse.
const fn sbox() -> [u8; 256] {
    let mut table = [0u8; 256];
    let (mut power, mut inverse) = (1u8, 1u8);
    loop {
        power ^= double(power);
        inverse ^= inverse << 1;
        inverse ^= inverse << 2;
        inverse ^= inverse << 4;
        inverse ^= 0x09 & 0u8.wrapping_sub(inverse >> 7);
        let affine = inverse
            ^ inverse.rotate_left(1)
            ^ inverse.rotate_left(2)
            ^ inverse.rotate_left(3)
            ^ inverse.rotate_left(4);
        table[power as usize] = affine ^ 0x63;
        if power == 1 {
            break;
        }
    }
    table[0] = 0x63;
    table
}

/// Computes the tables, which combine the substitution and the mixing of a column. Each row's table is the previous
/// row's table, rotated by a byte.
const fn tables() -> [[u32; 256]; 4] {
    let mut tables = [[0u32; 256]; 4];
    let mut index = 0;
    while index < 256 {
        let s = SBOX[index];
        let column = u32::from_be_bytes([double(s), s, s, s ^ double(s)]);
        let mut row = 0;
        while row < 4 {
            tables[row][index] = column.rotate_right(8 * row as u32);
            row += 1;
        }
        index += 1;
    }
    tables
}

static SBOX: [u8; 256] = sbox();
static TABLES: [[u32; 256]; 4] = tables();
const ROUNDS: usize = 14;
const KEY_WORDS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_example_of_fips_197() {
        let key = std::array::from_fn(|index| index as u8);
        let block = [0x00112233, 0x44556677, 0x8899aabb, 0xccddeeff];
        let expected = [0x8ea2b7ca, 0x516745bf, 0xeafc4990, 0x4b496089];
        assert_eq!(Aes256::new(&key).encrypt(block), expected);
    }
}
