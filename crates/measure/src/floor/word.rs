//! What the words of the shared memory are for.

/// What the words are for.
#[derive(Clone, Copy, Debug)]
pub enum Word {
    Asked,
    Question,
    First,
    Second,
    Ready,
    Failed,
    Result,
    Process,
    Ping,
    Pong,
}
