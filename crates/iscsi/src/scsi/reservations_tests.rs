//! Persistent reservations against a reference that is too simple to be wrong, and what they say of single cases.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn port(number: u8) -> Port {
    let initiator = format!("iqn.example:{number} and blanks").into();
    Port { initiator, isid: [0x40, 0, 0, 0, 1, number], portal_group: u16::from(number) + 1 }
}

/// What anybody can do.
#[derive(Clone, Copy, Debug)]
enum Op {
    Register(u8, u64, u64),
    Ignore(u8, u64),
    Reserve(u8, u64, u8),
    Release(u8, u64, u8),
    Clear(u8, u64),
    Preempt(u8, u64, u64, u8),
    SaveAndRestore,
}

fn op() -> impl Strategy<Value = Op> {
    let kind = prop::sample::select(vec![1u8, 3, 5, 6, 7, 8]);
    let (who, key) = (0..4u8, 0..4u64);
    prop_oneof![
        (who.clone(), key.clone(), key.clone())
            .prop_map(|(who, old, new)| Op::Register(who, old, new)),
        (who.clone(), key.clone()).prop_map(|(who, new)| Op::Ignore(who, new)),
        (who.clone(), key.clone(), kind.clone())
            .prop_map(|(who, key, kind)| Op::Reserve(who, key, kind)),
        (who.clone(), key.clone(), kind.clone())
            .prop_map(|(who, key, kind)| Op::Release(who, key, kind)),
        (who.clone(), key.clone()).prop_map(|(who, key)| Op::Clear(who, key)),
        (who, key.clone(), key, kind)
            .prop_map(|(who, key, victim, kind)| Op::Preempt(who, key, victim, kind)),
        Just(Op::SaveAndRestore),
    ]
}

/// The reference: keys by port, the kind of the reservation, and the one who made it.
#[derive(Clone, Debug, Default)]
struct Toy {
    keys: BTreeMap<u8, u64>,
    reservation: Option<(u8, u8)>,
}

/// What happened: refused, or who was told what.
type Told = Result<Vec<(u8, u16)>, ()>;

impl Toy {
    fn holds(&self, who: u8) -> bool {
        match self.reservation {
            Some((_, 7 | 8)) => self.keys.contains_key(&who),
            Some((holder, _)) => holder == who,
            None => false,
        }
    }

    fn others(&self, who: u8, code: u16) -> Vec<(u8, u16)> {
        self.keys.keys().filter(|other| **other != who).map(|other| (*other, code)).collect()
    }

    fn has(&self, who: u8, key: u64) -> Result<(), ()> {
        if self.keys.get(&who) == Some(&key) { Ok(()) } else { Err(()) }
    }

    fn apply(&mut self, op: Op) -> Told {
        match op {
            Op::Register(who, old, _) if self.keys.get(&who).copied().unwrap_or(0) != old => {
                Err(())
            }
            Op::Register(who, _, 0) | Op::Ignore(who, 0) => Ok(self.unregister(who)),
            Op::Register(who, _, new) | Op::Ignore(who, new) => {
                self.keys.insert(who, new);
                Ok(Vec::new())
            }
            Op::Reserve(who, key, kind) => {
                self.has(who, key)?;
                match self.reservation {
                    None => self.reservation = Some((who, kind)),
                    Some((_, has)) if has == kind && self.holds(who) => {}
                    Some(_) => return Err(()),
                }
                Ok(Vec::new())
            }
            Op::Release(who, key, kind) => {
                self.has(who, key)?;
                if !self.holds(who) {
                    return Ok(Vec::new());
                }
                match self.reservation {
                    Some((_, has)) if has != kind => return Err(()),
                    _ => self.reservation = None,
                }
                Ok(if kind >= 5 { self.others(who, 0x2a04) } else { Vec::new() })
            }
            Op::Clear(who, key) => {
                self.has(who, key)?;
                let told = self.others(who, 0x2a03);
                *self = Toy::default();
                Ok(told)
            }
            Op::Preempt(who, key, victim, kind) => self.preempt(who, key, victim, kind),
            Op::SaveAndRestore => Ok(Vec::new()),
        }
    }

    fn unregister(&mut self, who: u8) -> Vec<(u8, u16)> {
        let was_there = self.keys.remove(&who).is_some();
        match self.reservation {
            Some((_, 7 | 8)) => {
                if self.keys.is_empty() {
                    self.reservation = None;
                }
                Vec::new()
            }
            Some((holder, kind)) if holder == who && was_there => {
                self.reservation = None;
                if kind >= 5 { self.others(who, 0x2a04) } else { Vec::new() }
            }
            _ => Vec::new(),
        }
    }

    fn preempt(&mut self, who: u8, key: u64, victim: u64, kind: u8) -> Told {
        self.has(who, key)?;
        let is_all = matches!(self.reservation, Some((_, 7 | 8)));
        let takes = match self.reservation {
            Some(_) if is_all => victim == 0,
            Some((holder, _)) => self.keys.get(&holder) == Some(&victim),
            None => false,
        };
        if victim == 0 && !takes {
            return Err(());
        }
        let loses = |other: &u8, has: &u64| *other != who && (victim == 0 || *has == victim);
        let losers: Vec<u8> = self
            .keys
            .iter()
            .filter(|(other, has)| loses(other, has))
            .map(|(other, _)| *other)
            .collect();
        if losers.is_empty() && !takes && key != victim {
            return Err(());
        }
        self.keys.retain(|other, _| !losers.contains(other));
        let mut told: Vec<_> = losers.into_iter().map(|loser| (loser, 0x2a05)).collect();
        if takes {
            let before = self.reservation.replace((who, kind));
            if before.is_some_and(|(_, before)| before != kind) {
                told.extend(self.others(who, 0x2a04));
            }
        }
        Ok(told)
    }

    fn allows(&self, who: u8, effect: Effect) -> bool {
        let Some((_, kind)) = self.reservation else { return true };
        let is_in = self.holds(who) || (kind >= 5 && self.keys.contains_key(&who));
        let reads = matches!(kind, 1 | 5 | 7) && effect == Effect::Reads;
        is_in || effect == Effect::Harmless || reads
    }
}

fn apply(real: &mut Reservations, op: Op) -> Told {
    let kind = |kind| Kind::of(kind).unwrap();
    let change = match op {
        Op::Register(who, old, new) => real.register(&port(who), Some(old), new, true),
        Op::Ignore(who, new) => real.register(&port(who), None, new, true),
        Op::Reserve(who, key, of) => {
            real.reserve(&port(who), key, kind(of)).map(|()| Change::default())
        }
        Op::Release(who, key, of) => real.release(&port(who), key, kind(of)),
        Op::Clear(who, key) => real.clear(&port(who), key),
        Op::Preempt(who, key, victim, of) => real.preempt(&port(who), key, victim, kind(of)),
        Op::SaveAndRestore => {
            let generation = real.generation;
            *real = Reservations::restore(&real.save()).expect("what was saved is read");
            real.generation = generation;
            Ok(Change::default())
        }
    };
    let change = change.map_err(drop)?;
    let number = |port: &Port| port.isid[5];
    Ok(change.attentions.iter().map(|(port, code)| (number(port), *code)).collect())
}

proptest! {
    #[test]
    fn they_behave_as_the_reference_does(ops in prop::collection::vec(op(), 1..60)) {
        let (mut real, mut toy) = (Reservations::default(), Toy::default());
        real.persist = true;
        for op in ops {
            let mut told = apply(&mut real, op);
            let mut expected = toy.apply(op);
            told.iter_mut().chain(&mut expected).for_each(|told| told.sort_unstable());
            prop_assert_eq!(told, expected, "{:?} {:?}", op, toy);
            for who in 0..4 {
                prop_assert_eq!(real.key_of(&port(who)), toy.keys.get(&who).copied());
                prop_assert_eq!(real.is_holder(&port(who)), toy.holds(who), "{:?} {:?}", op, toy);
                for effect in [Effect::Harmless, Effect::Reads, Effect::Writes] {
                    prop_assert_eq!(real.allows(&port(who), effect), toy.allows(who, effect));
                }
            }
        }
    }

    #[test]
    fn no_text_makes_them_panic(text in "(covey reservations 1\n)?((key|holder|x) [0-9a-f ]{0,40}\n){0,4}") {
        let _ = Reservations::restore(&text);
    }
}

#[test]
fn what_is_not_to_survive_is_not_saved() {
    let mut all = Reservations::default();
    all.register(&port(1), Some(0), 7, false).unwrap();
    assert_eq!(all.save(), "");
    all.register(&port(1), Some(7), 8, true).unwrap();
    all.reserve(&port(1), 8, Kind::WriteExclusive).unwrap();
    let text = all.save();
    assert!(
        text.starts_with("covey reservations 1\nkey 0000000000000008 400000000101 2 iqn"),
        "{text}"
    );
    let back = Reservations::restore(&text).unwrap();
    assert_eq!((back.holder, back.registrations), (all.holder, all.registrations));
}

#[test]
fn there_is_an_end_to_registrations() {
    let mut all = Reservations::default();
    for number in 0..REGISTRATIONS_MAX {
        let isid = [0, 0, 0, 0, (number >> 8) as u8, number as u8];
        all.register(&Port { isid, ..port(0) }, None, 1, false).unwrap();
    }
    assert!(all.register(&port(9), None, 1, false).is_err());
}

#[test]
fn no_more_are_registered_than_can_be_saved() {
    let mut all = Reservations::default();
    let long = |number: u16| {
        let initiator = format!("iqn.example:{number:05}{}", "x".repeat(206)).into();
        Port { initiator, isid: [0x40, 0, 0, 0, 1, 1], portal_group: u16::MAX }
    };
    let refused = (0..300).find(|number| all.register(&long(*number), None, 1, true).is_err());
    assert!(refused.is_some_and(|count| count > 200), "{refused:?}");
    all.reserve(&long(0), 1, Kind::WriteExclusive).unwrap();
    assert!(all.save().len() < 65_536 - 100);
    assert_eq!(
        Reservations::restore(&all.save()).map(|all| all.registrations.len()),
        Some(all.registrations.len())
    );
}
