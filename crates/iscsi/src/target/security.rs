//! The security stage of a login: AuthMethod and CHAP, seen from the target (RFC 7143, section 12).

use super::Access;
use crate::chap::{Algorithm, CHALLENGE_BYTES, decode, encode, is_same};
use crate::message::login as status;
use crate::text::Text;

/// How far the initiator has proved who it is.
#[derive(Debug)]
pub(super) enum Proof {
    /// AuthMethod has not been said.
    Unsaid,
    /// CHAP was chosen; CHAP_A comes next.
    Chosen,
    /// A challenge is on its way.
    Challenged(Algorithm),
    /// It has, or need not.
    Given,
}

/// Random bytes: for a challenge, and its identifier.
#[derive(Clone, Copy)]
pub(super) struct Challenge {
    pub id: u8,
    pub bytes: [u8; CHALLENGE_BYTES],
}

impl Proof {
    /// Takes the security keys of a text and appends the answers. An error is the status of a failed login.
    pub fn step(
        &mut self,
        access: &Access,
        challenge: &Challenge,
        text: &mut Text,
        out: &mut Text,
    ) -> Result<(), u16> {
        match self {
            Proof::Unsaid => self.choose(access, text, out),
            Proof::Chosen => self.challenge(challenge, text, out),
            Proof::Challenged(algorithm) => {
                let algorithm = *algorithm;
                let name = verify(algorithm, access, challenge, text)?;
                *self = Proof::Given;
                answer(algorithm, access, challenge, &name, text, out)
            }
            Proof::Given => Ok(()),
        }
    }

    fn choose(&mut self, access: &Access, text: &mut Text, out: &mut Text) -> Result<(), u16> {
        let Some(offered) = text.take("AuthMethod") else { return Ok(()) };
        let wanted = if access.chap.is_empty() { "None" } else { "CHAP" };
        //= rfc7143#12.1
        // The target MUST answer with the first method of the list that it will use.
        if !offered.split(',').any(|method| method == wanted) {
            return Err(status::AUTHENTICATION);
        }
        out.push("AuthMethod", wanted);
        if wanted == "None" {
            *self = Proof::Given;
            return Ok(());
        }
        *self = Proof::Chosen;
        Ok(())
    }

    fn challenge(
        &mut self,
        challenge: &Challenge,
        text: &mut Text,
        out: &mut Text,
    ) -> Result<(), u16> {
        let Some(offered) = text.take("CHAP_A") else { return Ok(()) };
        let algorithm = Algorithm::choose(&offered).ok_or(status::AUTHENTICATION)?;
        out.push("CHAP_A", (algorithm as u8).to_string());
        out.push("CHAP_I", challenge.id.to_string());
        out.push("CHAP_C", encode(&challenge.bytes));
        *self = Proof::Challenged(algorithm);
        Ok(())
    }
}

/// Checks the initiator's response; its name.
fn verify(
    algorithm: Algorithm,
    access: &Access,
    challenge: &Challenge,
    text: &mut Text,
) -> Result<String, u16> {
    let (name, response) = (text.take("CHAP_N"), text.take("CHAP_R"));
    let (Some(name), Some(response)) = (name, response.as_deref().and_then(decode)) else {
        return Err(status::AUTHENTICATION);
    };
    let known = access.chap.iter().find(|known| known.name == name);
    // A name that nobody has takes as long as a wrong secret.
    let secret = known.map_or(&b""[..], |known| &known.secret);
    let expected = algorithm.response(challenge.id, secret, &challenge.bytes);
    if known.is_some() & is_same(&expected, &response) {
        Ok(name)
    } else {
        Err(status::AUTHENTICATION)
    }
}

/// Answers the initiator's own challenge, if there is one.
fn answer(
    algorithm: Algorithm,
    access: &Access,
    challenge: &Challenge,
    name: &str,
    text: &mut Text,
    out: &mut Text,
) -> Result<(), u16> {
    let (id, theirs) = (text.take("CHAP_I"), text.take("CHAP_C"));
    let (Some(id), Some(theirs)) = (&id, &theirs) else {
        return if id.is_some() || theirs.is_some() { Err(status::AUTHENTICATION) } else { Ok(()) };
    };
    let (Ok(id), Some(theirs)) = (id.parse::<u8>(), decode(theirs)) else {
        return Err(status::AUTHENTICATION);
    };
    let mutual = access.mutual.as_ref().ok_or(status::AUTHENTICATION)?;
    //= rfc7143#9.2.1
    // An initiator MUST NOT be answered its own challenge, and the two directions MUST NOT have the same secret: it could
    // have us prove to it what it is asked to prove.
    let own = access.chap.iter().find(|known| known.name == name);
    let has_same_secret = own.is_some_and(|own| own.secret == mutual.secret);
    if theirs == challenge.bytes || has_same_secret {
        return Err(status::AUTHENTICATION);
    }
    out.push("CHAP_N", &mutual.name);
    out.push("CHAP_R", encode(&algorithm.response(id, &mutual.secret, &theirs)));
    Ok(())
}
