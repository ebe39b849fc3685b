//! What can be concluded.

use serde::{Deserialize, Serialize};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Cause {
    /// Packets beyond a length vanish.
    MtuBlackHole,
    /// Packets of any length are lost by chance.
    Loss,
    /// Long packets are lost, short ones are not.
    LengthDependentLoss,
    /// Trains of packets are lost from a certain length on.
    ShortQueue,
    /// What exceeds a rate is lost.
    Policed,
    /// Packets are lost while several nodes send, and only then.
    CrowdCollapse,
    /// One way is slower than the other.
    Asymmetric,
    /// Only one end can send at a time.
    HalfDuplex,
    /// Slower than links of its kind.
    Slow,
    /// An end lets too little be under way.
    SmallBuffers,
    /// An end makes its CPU do what its card could.
    OffloadsOff,
    /// Short writes wait for each other.
    NagleDelayedAck,
    /// Programs of an end use the CPUs that its network needs.
    CpuContention,
    /// Two cards have one address.
    DuplicateAddress,
}

impl Cause {
    /// What a person calls it.
    pub fn words(self) -> &'static str {
        match self {
            Cause::MtuBlackHole => "an MTU black hole: long packets vanish",
            Cause::Loss => "packets are lost",
            Cause::LengthDependentLoss => "long packets are lost",
            Cause::ShortQueue => "a short queue: long trains of packets are cut",
            Cause::Policed => "a policer: what exceeds its rate is lost",
            Cause::CrowdCollapse => "it collapses when several nodes send",
            Cause::Asymmetric => "one way is slower than the other",
            Cause::HalfDuplex => "half duplex: only one end can send at a time",
            Cause::Slow => "slower than links of its kind",
            Cause::SmallBuffers => "small socket buffers",
            Cause::OffloadsOff => "offloads are switched off",
            Cause::NagleDelayedAck => "short writes wait for delayed acknowledgements",
            Cause::CpuContention => "programs compete for the CPUs of an end",
            Cause::DuplicateAddress => "two cards have one address",
        }
    }
}

/// A cause with its reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What is wrong.
    pub cause: Cause,
    /// From what that follows.
    pub evidence: String,
    /// What to do.
    pub remedy: String,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing that the rules know is wrong.
    NoFault,
    /// These are.
    Faults(Vec<Finding>),
    /// Nothing can be said, for this reason.
    NotTrustworthy(String),
}

impl Verdict {
    /// The causes that it names.
    pub fn causes(&self) -> Vec<Cause> {
        match self {
            Verdict::Faults(findings) => findings.iter().map(|finding| finding.cause).collect(),
            Verdict::NoFault | Verdict::NotTrustworthy(_) => Vec::new(),
        }
    }
}
