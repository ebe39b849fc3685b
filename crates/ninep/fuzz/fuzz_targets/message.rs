//! Whatever decodes is encoded to the same bytes.
#![no_main]

use covey_ninep::message::{Dialect, HEADER_BYTES, Message};
use covey_wire::{Bytes, Segments};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for dialect in [Dialect::Plan9, Dialect::Unix, Dialect::Linux, Dialect::Covey] {
        let Ok((tag, message)) = Message::get(Bytes::copy_from_slice(data), dialect) else {
            continue;
        };
        let mut out = Segments::new();
        message.put(tag, dialect, &mut out);
        let written: Vec<u8> = out.runs().flatten().copied().collect();
        // The size field is checked where the stream is cut into messages, not here.
        assert_eq!(written[4..], data[4..]);
        assert_eq!(written.len(), HEADER_BYTES + message.body_size(dialect));
    }
});
