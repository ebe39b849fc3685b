//! Which byte of a number comes first in memory.

/// The byte order of a machine's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// The least significant byte comes first: x86, ARM, RISC-V.
    Little,
    /// The most significant byte comes first: s390x, older POWER and SPARC.
    Big,
}

impl ByteOrder {
    /// That of the machine that this runs on.
    pub const NATIVE: ByteOrder =
        if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little };

    /// The other one.
    pub fn other(self) -> ByteOrder {
        match self {
            ByteOrder::Little => ByteOrder::Big,
            ByteOrder::Big => ByteOrder::Little,
        }
    }
}
