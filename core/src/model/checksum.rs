//! A checksum against damaged stored bytes (P7). Fast, not cryptographic.
//!
//! Knows only bytes. Called by [`super::Message`], by stores, and to tell repeated chunks.

/// A 64-bit checksum. Eight bytes a step; every step is a bijection of the state, so damage within one aligned word
/// is always seen and any other with probability 1 − 2⁻⁶⁴.
pub fn checksum(bytes: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |state: u64, word: u64| (state ^ word).wrapping_mul(MULTIPLIER).rotate_left(29);
    let (words, rest) = bytes.as_chunks::<8>();
    let state = words.iter().fold(bytes.len() as u64, |state, word| {
        mix(state, u64::from_le_bytes(*word))
    });
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let state = mix(state, u64::from_le_bytes(last));
    (state ^ (state >> 32)).wrapping_mul(MULTIPLIER)
}
