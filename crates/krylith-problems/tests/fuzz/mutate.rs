//! Makes an input from samples by flipped bits, cuts, splices, numbers that are off by one, and words of the
//! format.

/// Longest input.
const LONGEST: usize = 1 << 16;

/// splitmix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xD134_2543_DE82_EF95))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`, or 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn of<'a, T: ?Sized>(&mut self, list: &[&'a T]) -> &'a T {
        list[self.below(list.len())]
    }
}

/// Numbers, as text, with which programs often fail.
const NUMBERS: [&str; 26] = [
    "0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "8",
    "9",
    "16",
    "255",
    "256",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551616",
    "99999999999999999999999",
    "1e308",
    "1e309",
    "-1e-320",
    "0.5",
    "nan",
    "inf",
    "-0",
];

/// Such numbers as words of two to eight bytes.
const WORDS: [u64; 16] = [
    0,
    1,
    2,
    3,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// Returns a sample with one or a few changes. Half of the time it is one of the first `given`, undamaged
/// samples.
pub fn mutate(samples: &[Vec<u8>], given: usize, words: &[&[u8]], random: &mut Random) -> Vec<u8> {
    let among = if random.below(2) == 0 { given } else { samples.len() };
    let mut bytes = samples[random.below(among)].clone();
    loop {
        change(&mut bytes, samples, words, random);
        if random.below(2) == 0 {
            break;
        }
    }
    bytes.truncate(LONGEST);
    bytes
}

/// Returns a number of random magnitude. Sizes that a reader accepts and that take about 100 MB are made
/// rare.
fn size(random: &mut Random) -> u64 {
    let n = random.next() >> random.below(64);
    if (1 << 18..1 << 25).contains(&n) && random.below(16) > 0 { n >> 12 } else { n }
}

fn change(bytes: &mut Vec<u8>, samples: &[Vec<u8>], words: &[&[u8]], random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    let most = if random.below(8) == 0 { bytes.len() } else { 8 };
    let length = 1 + random.below(most);
    let end = bytes.len().min(at + length);
    match random.below(12) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.next() as u8;
            }
        }
        2 => bytes.insert(at, random.next() as u8),
        3 => drop(bytes.drain(at..end)),
        4 if random.below(4) == 0 => bytes.truncate(at),
        4 => drop(bytes.drain(at..bytes.len().min(at + 1))),
        5 => {
            // Repeat a run of bytes once, or up to 2000 times.
            let run = bytes[at..end].to_vec();
            let times = if random.below(8) == 0 { random.below(2000) } else { 1 };
            let times = times.min(LONGEST / run.len().max(1));
            bytes.splice(at..at, run.repeat(times));
        }
        6 => {
            let other = &samples[random.below(samples.len())];
            let from = random.below(other.len() + 1);
            bytes.truncate(at);
            bytes.extend(&other[from..]);
        }
        7 | 8 => {
            // Replace a number in the text by another.
            let digit = |c: &u8| c.is_ascii_digit();
            if let Some(begin) = bytes.iter().skip(at).position(digit).map(|p| at + p) {
                let length = bytes[begin..].iter().take_while(|c| digit(c)).count();
                let number = match random.below(3) {
                    0 => size(random).to_string(),
                    _ => random.of(&NUMBERS).into(),
                };
                bytes.splice(begin..begin + length, number.into_bytes());
            }
        }
        9 => {
            // Overwrite a word of 1, 2, 4 or 8 bytes, in either byte order, often at a multiple of its size.
            let width = 1 << random.below(4);
            let at = if random.below(2) == 0 { at } else { at - at % width };
            let word = WORDS[random.below(WORDS.len())].wrapping_add(random.next() % 3).wrapping_sub(1);
            let little = &word.to_le_bytes()[..width];
            if let Some(place) = bytes.get_mut(at..at + width) {
                place.copy_from_slice(little);
                if random.below(2) == 0 {
                    place.reverse();
                }
            }
        }
        _ if words.is_empty() => {}
        10 => {
            let word = random.of(words);
            bytes.splice(at..at, word.iter().copied());
        }
        _ => {
            let word = random.of(words);
            let end = bytes.len().min(at + word.len());
            bytes.splice(at..end, word.iter().copied());
        }
    }
}
