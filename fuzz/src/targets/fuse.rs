//! Requests of the kernel's FUSE.

use covey_mount::abi;
use covey_wire::Bytes;

/// A request is taken apart or refused.
pub fn requests(data: &[u8]) {
    // The header's length is set right, or hardly anything would get past it.
    let mut message = data.to_vec();
    if let Some(length) = message.first_chunk_mut::<4>() {
        *length = (data.len() as u32).to_le_bytes();
    }
    for bytes in [data.to_vec(), message] {
        if let Ok((_, Ok(request))) = abi::parse(Bytes::from(bytes)) {
            let mut out = Vec::new();
            request.put_body((), &mut out);
            assert_eq!(out.len(), request.body_size(()));
        }
    }
}
