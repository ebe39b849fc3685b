//! `covey`: a few Linux machines as one computer that is driven through files.

#![forbid(unsafe_code)]

mod node;

fn main() {}
