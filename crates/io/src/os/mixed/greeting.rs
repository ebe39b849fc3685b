//! What two endpoints say to each other before they are peers: who they are, and that they know the job's secret.
//!
//! ```text
//!   caller                                     called
//!   magic | nonce 32 | address ──────────────►
//!          ◄────────────── magic | nonce 32 | address | proof 32
//!   proof 32 ────────────────────────────────►
//!          ◄────────────────────────────────── verdict
//! ```
//!
//! A proof is an HMAC of a word for its side, both nonces and both addresses, so that none serves twice, or for the other
//! side. Who is called says nothing that depends on the secret before the caller's nonce is part of it.

use super::address::{ADDRESS_BYTES, Address};
use super::secret::{PROOF_BYTES, Secret};

const MAGIC: &[u8; 8] = b"COVEYMX3";
const NONCE_BYTES: usize = 32;
/// Of what either side says first.
const CARD_BYTES: usize = MAGIC.len() + NONCE_BYTES + ADDRESS_BYTES;

/// What the called one makes of a caller that has proven itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// This connection is the one.
    Yes,
    /// Another connection is the one, or will be.
    Other,
    /// There is no room in shared memory: come by TCP.
    ByTcp,
}

impl Verdict {
    fn byte(self) -> u8 {
        match self {
            Verdict::Yes => b'Y',
            Verdict::Other => b'O',
            Verdict::ByTcp => b'T',
        }
    }
}

/// What came of what was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It goes on.
    More,
    /// A caller has proven itself: [`Greeting::decide`].
    Proven(Address),
    /// What the called one says, who has proven itself.
    Said(Verdict, Address),
}

/// Whoever is at the other end is none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stranger;

/// One side of a greeting: bytes go in and come out.
#[derive(Debug)]
pub(super) struct Greeting {
    secret: Secret,
    /// Ours: magic, nonce and address.
    card: [u8; CARD_BYTES],
    theirs: [u8; CARD_BYTES],
    awaits: Awaits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaits {
    Card,
    CardAndProof,
    Proof,
    Verdict,
    Nothing,
}

impl Greeting {
    /// That of the one who calls; what it says first.
    pub fn calls(
        secret: &Secret,
        address: &Address,
        nonce: [u8; NONCE_BYTES],
    ) -> (Greeting, Vec<u8>) {
        let greeting = Greeting::new(secret, address, nonce, Awaits::CardAndProof);
        let first = greeting.card.to_vec();
        (greeting, first)
    }

    /// That of the one who is called.
    pub fn answers(secret: &Secret, address: &Address, nonce: [u8; NONCE_BYTES]) -> Greeting {
        Greeting::new(secret, address, nonce, Awaits::Card)
    }

    fn new(
        secret: &Secret,
        address: &Address,
        nonce: [u8; NONCE_BYTES],
        awaits: Awaits,
    ) -> Greeting {
        let mut card = [0; CARD_BYTES];
        let (magic, rest) = card.split_at_mut(MAGIC.len());
        let (number, place) = rest.split_at_mut(NONCE_BYTES);
        magic.copy_from_slice(MAGIC);
        number.copy_from_slice(&nonce);
        place.copy_from_slice(&address.encode());
        Greeting { secret: secret.clone(), card, theirs: [0; CARD_BYTES], awaits }
    }

    /// Whether the other has said who it is.
    pub fn is_begun(&self) -> bool {
        !matches!(self.awaits, Awaits::Card | Awaits::CardAndProof)
    }

    /// Bytes of what the other says next.
    pub fn bytes_wanted(&self) -> usize {
        match self.awaits {
            Awaits::Card => CARD_BYTES,
            Awaits::CardAndProof => CARD_BYTES + PROOF_BYTES,
            Awaits::Proof => PROOF_BYTES,
            Awaits::Verdict => 1,
            Awaits::Nothing => 0,
        }
    }

    /// Takes so many bytes; what is to be said then is added to `out`.
    pub fn take(&mut self, said: &[u8], out: &mut Vec<u8>) -> Result<Step, Stranger> {
        match self.awaits {
            Awaits::Card => {
                self.meet(said)?;
                out.extend_from_slice(&self.card);
                out.extend_from_slice(&self.secret.proof(&self.parts(CALLED)));
                self.awaits = Awaits::Proof;
                Ok(Step::More)
            }
            Awaits::CardAndProof => {
                let (card, proof) = said.split_at_checked(CARD_BYTES).ok_or(Stranger)?;
                self.meet(card)?;
                self.check(CALLED, proof)?;
                out.extend_from_slice(&self.secret.proof(&self.parts(CALLER)));
                self.awaits = Awaits::Verdict;
                Ok(Step::More)
            }
            Awaits::Proof => {
                self.check(CALLER, said)?;
                self.awaits = Awaits::Nothing;
                Ok(Step::Proven(self.them()?))
            }
            Awaits::Verdict => {
                let all = [Verdict::Yes, Verdict::Other, Verdict::ByTcp];
                let verdict = all.into_iter().find(|verdict| said == [verdict.byte()]);
                self.awaits = Awaits::Nothing;
                Ok(Step::Said(verdict.ok_or(Stranger)?, self.them()?))
            }
            Awaits::Nothing => Err(Stranger),
        }
    }

    /// Says what is made of the caller.
    pub fn decide(&self, verdict: Verdict, out: &mut Vec<u8>) {
        out.push(verdict.byte());
    }

    fn meet(&mut self, card: &[u8]) -> Result<(), Stranger> {
        self.theirs = card.try_into().map_err(|_| Stranger)?;
        if !card.starts_with(MAGIC) {
            return Err(Stranger);
        }
        self.them().map(drop)
    }

    fn them(&self) -> Result<Address, Stranger> {
        Address::decode(&self.theirs[MAGIC.len() + NONCE_BYTES..]).ok_or(Stranger)
    }

    fn check(&self, side: &[u8], proof: &[u8]) -> Result<(), Stranger> {
        if self.secret.is_proven(&self.parts(side), proof) { Ok(()) } else { Err(Stranger) }
    }

    /// What is proven: the caller's card always comes first.
    fn parts<'a>(&'a self, side: &'a [u8]) -> [&'a [u8]; 3] {
        let is_caller = matches!(self.awaits, Awaits::CardAndProof | Awaits::Verdict);
        let (first, second) =
            if is_caller { (&self.card, &self.theirs) } else { (&self.theirs, &self.card) };
        [side, first, second]
    }
}

const CALLER: &[u8] = b"covey peers: caller";
const CALLED: &[u8] = b"covey peers: called";

#[cfg(test)]
mod tests {
    use super::*;

    fn address(id: u8) -> Address {
        Address { id: [id; 16], host: [1; 8], user: 1, process: u32::from(id), tcp: None }
    }

    fn both(ours: &Secret, theirs: &Secret) -> Result<(Step, Step), Stranger> {
        let (mut caller, first) = Greeting::calls(ours, &address(1), [1; 32]);
        let mut called = Greeting::answers(theirs, &address(2), [2; 32]);
        let (mut to_caller, mut to_called) = (Vec::new(), Vec::new());
        assert_eq!(first.len(), called.bytes_wanted());
        assert_eq!(called.take(&first, &mut to_caller)?, Step::More);
        assert_eq!(to_caller.len(), caller.bytes_wanted());
        assert_eq!(caller.take(&to_caller, &mut to_called)?, Step::More);
        let proven = called.take(&to_called, &mut to_caller)?;
        let mut verdict = Vec::new();
        called.decide(Verdict::Yes, &mut verdict);
        Ok((proven, caller.take(&verdict, &mut to_called)?))
    }

    #[test]
    fn who_knows_the_secret_is_known_and_who_does_not_is_a_stranger() {
        let (ours, other) = (Secret::of(b"quail"), Secret::of(b"hawk"));
        let met = (Step::Proven(address(1)), Step::Said(Verdict::Yes, address(2)));
        assert_eq!(both(&ours, &ours), Ok(met));
        assert_eq!(both(&ours, &other), Err(Stranger));
    }

    /// What it would say about raw Ethernet, once it is a peer, nobody understands any more.
    #[test]
    fn one_of_another_version_is_a_stranger_to_both_sides() {
        let secret = Secret::of(b"quail");
        for version in [b'1', b'2', b'4'] {
            let (mut caller, mut first) = Greeting::calls(&secret, &address(1), [1; 32]);
            let mut called = Greeting::answers(&secret, &address(2), [2; 32]);
            let mut said = Vec::new();
            called.take(&first, &mut said).expect("a card");
            said[MAGIC.len() - 1] = version;
            assert_eq!(caller.take(&said, &mut Vec::new()), Err(Stranger));
            first[MAGIC.len() - 1] = version;
            let (mut called, mut said) =
                (Greeting::answers(&secret, &address(2), [2; 32]), Vec::new());
            assert_eq!(called.take(&first, &mut said), Err(Stranger));
            assert!(said.is_empty(), "it is told nothing");
        }
    }

    #[test]
    fn a_proof_does_not_serve_the_other_side() {
        let secret = Secret::of(b"quail");
        let (_, first) = Greeting::calls(&secret, &address(1), [1; 32]);
        let mut called = Greeting::answers(&secret, &address(2), [2; 32]);
        let mut said = Vec::new();
        called.take(&first, &mut said).expect("a card");
        let proof = said.split_off(CARD_BYTES);
        assert_eq!(called.take(&proof, &mut said), Err(Stranger));
    }
}
