//! The hashes of an image: of the whole, so that people can compare it with `sha256sum`, and of each chunk, so
//! that one wrong chunk is noticed before anybody is given it.
//!
//! ```text
//!   covey-image 1
//!   bytes 268435456
//!   chunk 1048576
//!   sha256 <64 digits>
//!   chunks 256
//!   <64 digits>            one line for each
//! ```

use sha2::{Digest as _, Sha256};
use std::fmt::Write;

/// SHA-256.
pub type Digest = [u8; 32];

/// Greatest image in bytes.
pub const IMAGE_BYTES_MAX: u64 = 64 << 30;
/// Longest text of sums in bytes: those of the greatest image are 1.1 MB.
pub const SUM_BYTES_MAX: usize = 2 << 20;
/// Least and greatest chunk in bytes.
const CHUNK_BYTES: (u64, u64) = (64 << 10, 4 << 20);
/// In how many chunks an image is cut whose chunks are between these bounds: a reader is one chunk behind its
/// source, so a chain of ten costs 4 % of the time.
const CHUNKS: u64 = 256;

/// The hashes of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Length of the image.
    pub bytes: u64,
    /// Length of each chunk but the last, a power of two.
    pub chunk_bytes: u32,
    /// Of the whole.
    pub sha256: Digest,
    chunks: Vec<Digest>,
}

impl Sum {
    /// How many chunks.
    pub fn count(&self) -> usize {
        self.chunks.len()
    }

    /// Where a chunk begins, and its length.
    pub fn chunk(&self, index: usize) -> (u64, u32) {
        let begin = index as u64 * u64::from(self.chunk_bytes);
        (begin, u64::from(self.chunk_bytes).min(self.bytes.saturating_sub(begin)) as u32)
    }

    /// Whether these pieces, one after another, are the chunk.
    pub fn is_chunk<P: AsRef<[u8]>>(&self, index: usize, pieces: &[P]) -> bool {
        let mut hash = Sha256::new();
        pieces.iter().for_each(|piece| hash.update(piece.as_ref()));
        self.chunks.get(index).is_some_and(|chunk| hash.finalize()[..] == chunk[..])
    }

    /// The text of `sum`.
    pub fn text(&self) -> String {
        let (bytes, chunk, count) = (self.bytes, self.chunk_bytes, self.chunks.len());
        let whole = hex(&self.sha256);
        let mut text =
            format!("{HEAD}\nbytes {bytes}\nchunk {chunk}\nsha256 {whole}\nchunks {count}\n");
        for chunk in &self.chunks {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}", hex(chunk));
        }
        text
    }

    /// What the text begins with: enough to tell one image from another.
    pub fn head(&self) -> String {
        let text = self.text();
        let end = text.match_indices('\n').nth(3).map_or(text.len(), |(at, _)| at + 1);
        text[..end].to_owned()
    }

    /// Reads the text of `sum`; what is wrong with it otherwise.
    pub fn parse(text: &str) -> Result<Sum, String> {
        if text.len() > SUM_BYTES_MAX {
            return Err(format!("the sums are {} bytes, limit is {SUM_BYTES_MAX}", text.len()));
        }
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return Err(format!("the sums do not begin with {HEAD:?}"));
        }
        let bytes = number(&mut lines, "bytes", IMAGE_BYTES_MAX)?;
        let chunk_bytes = number(&mut lines, "chunk", CHUNK_BYTES.1)?;
        if chunk_bytes < CHUNK_BYTES.0 || !chunk_bytes.is_power_of_two() {
            let (least, most) = CHUNK_BYTES;
            return Err(format!("chunk {chunk_bytes} is no power of two from {least} to {most}"));
        }
        let sha256 = parse_hex(word(&mut lines, "sha256")?).ok_or("sha256 is not 64 digits")?;
        let count = number(&mut lines, "chunks", u64::MAX)?;
        if count != bytes.div_ceil(chunk_bytes) {
            return Err(format!("there are {count} chunks of {chunk_bytes} for {bytes} bytes"));
        }
        let chunks: Option<Vec<_>> = lines.map(parse_hex).collect();
        let chunks = chunks.filter(|chunks| chunks.len() as u64 == count);
        let chunks = chunks.ok_or_else(|| format!("there are not {count} hashes of 64 digits"))?;
        Ok(Sum { bytes, chunk_bytes: chunk_bytes as u32, sha256, chunks })
    }
}

/// Makes the sums of bytes that come one after another.
pub struct Summer {
    chunk_bytes: u64,
    bytes: u64,
    whole: Sha256,
    chunk: Sha256,
    chunks: Vec<Digest>,
}

impl Summer {
    /// For an image of this length.
    pub fn new(bytes: u64) -> Summer {
        let chunk_bytes =
            bytes.div_ceil(CHUNKS).next_power_of_two().clamp(CHUNK_BYTES.0, CHUNK_BYTES.1);
        let (whole, chunk) = (Sha256::new(), Sha256::new());
        Summer { chunk_bytes, bytes: 0, whole, chunk, chunks: Vec::new() }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, mut data: &[u8]) {
        self.whole.update(data);
        while !data.is_empty() {
            let left = self.chunk_bytes - self.bytes % self.chunk_bytes;
            let (now, rest) = data.split_at(data.len().min(left as usize));
            self.chunk.update(now);
            self.bytes += now.len() as u64;
            data = rest;
            if self.bytes.is_multiple_of(self.chunk_bytes) {
                self.end_chunk();
            }
        }
    }

    fn end_chunk(&mut self) {
        let hash = std::mem::take(&mut self.chunk).finalize();
        self.chunks.push(hash.into());
    }

    /// The sums of what came.
    pub fn finish(mut self) -> Sum {
        if !self.bytes.is_multiple_of(self.chunk_bytes) {
            self.end_chunk();
        }
        Sum {
            bytes: self.bytes,
            chunk_bytes: self.chunk_bytes as u32,
            sha256: self.whole.finalize().into(),
            chunks: self.chunks,
        }
    }
}

/// As people write a hash.
pub fn hex(digest: &Digest) -> String {
    digest.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Reads a hash, or any other 32 bytes, as people write it.
pub fn parse_hex(text: &str) -> Option<Digest> {
    let text = text.as_bytes();
    if text.len() != 64 {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(text.chunks(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(digest)
}

fn word<'a>(lines: &mut std::str::Lines<'a>, name: &str) -> Result<&'a str, String> {
    let line = lines.next().unwrap_or_default();
    let value = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(' '));
    value.ok_or_else(|| format!("{line:.80?} stands where `{name} VALUE` is expected"))
}

fn number(lines: &mut std::str::Lines<'_>, name: &str, max: u64) -> Result<u64, String> {
    let value = word(lines, name)?;
    let number = value.parse().ok().filter(|number| *number <= max);
    number.ok_or_else(|| format!("{name} {value:.40?} is not a number up to {max}"))
}

const HEAD: &str = "covey-image 1";

#[cfg(test)]
mod tests {
    use super::*;

    fn sum_of(data: &[u8]) -> Sum {
        let mut summer = Summer::new(data.len() as u64);
        data.chunks(70_001).for_each(|piece| summer.update(piece));
        summer.finish()
    }

    #[test]
    fn sums_are_those_of_sha256sum_and_are_read_back() {
        let sum = sum_of(b"abc");
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hex(&sum.sha256), known);
        let text =
            format!("covey-image 1\nbytes 3\nchunk 65536\nsha256 {known}\nchunks 1\n{known}\n");
        assert_eq!(sum.text(), text);
        assert_eq!(Sum::parse(&text).unwrap(), sum);
        assert!(text.starts_with(&sum.head()) && sum.head().ends_with(&format!("{known}\n")));
    }

    #[test]
    fn each_chunk_has_its_hash() {
        let data: Vec<u8> = (0..200_000u32).map(|n| (n % 253) as u8).collect();
        let sum = sum_of(&data);
        assert_eq!((sum.chunk_bytes, sum.count()), (65536, 4));
        assert_eq!((sum.chunk(0), sum.chunk(3)), ((0, 65536), (196_608, 3392)));
        for index in 0..sum.count() {
            let (begin, length) = sum.chunk(index);
            let chunk = &data[begin as usize..][..length as usize];
            assert!(sum.is_chunk(index, &[&chunk[..7], &chunk[7..]]));
            assert!(!sum.is_chunk(index, &[&chunk[1..]]));
        }
        assert!(!sum.is_chunk(4, &[[0u8; 0]]));
    }

    #[test]
    fn an_empty_image_has_no_chunks() {
        let sum = sum_of(b"");
        assert_eq!((sum.bytes, sum.count()), (0, 0));
        assert_eq!(Sum::parse(&sum.text()).unwrap(), sum);
    }

    #[test]
    fn sums_that_contradict_themselves_are_refused() {
        let good = sum_of(&[1; 100_000]).text();
        assert!(Sum::parse(&good).is_ok());
        for (from, to, why) in [
            ("covey-image 1", "covey-image 2", "begin"),
            ("bytes 100000", "bytes 1000000", "chunks of"),
            ("bytes 100000", "bytes -1", "not a number"),
            ("bytes 100000", "bytes 99999999999999", "not a number"),
            ("chunk 65536", "chunk 65537", "power of two"),
            ("chunk 65536", "chunk 0", "power of two"),
            ("chunks 2", "chunks 18446744073709551615", "chunks of"),
            ("sha256 ", "sha256 x", "64 digits"),
        ] {
            let error = Sum::parse(&good.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(why), "{to}: {error}");
        }
        let cut = good.trim_end().rsplit_once('\n').unwrap().0;
        assert!(Sum::parse(cut).unwrap_err().contains("not 2 hashes"));
    }
}
