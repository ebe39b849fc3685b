//! Our initiator and our target, byte by byte: what is agreed on, where data goes, and connections that are lost.

mod line;
mod support;

use bytes::BytesMut;
use covey_iscsi::initiator::{self, Config, Done, Lost, Refusal, Request, Session};
use covey_iscsi::message::{Array, Header, Lengths, flags};
use covey_iscsi::negotiate::{Digest, Parameters};
use covey_iscsi::pdu::{self, Digests};
use covey_iscsi::scsi::{Device, Unit, Units};
use covey_iscsi::target::{self, Access, Elsewhere, Portal, TargetConfig};
use covey_wire::{Blame, Deposit, Landing, Machine, Payload, Rng, Segments};
use line::{BLOCK, INITIATOR, TARGET, Toy, cdb, credentials, portal, portal_with};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// Two machines and the bytes between them, as the loop of the `io` crate would move them.
struct Pair<D: Device = Toy> {
    initiator: End<initiator::Connection>,
    target: End<target::Connection<D>>,
    /// Most bytes that arrive at once.
    chunk: usize,
    /// How many bytes more arrive before the connection is lost.
    left: usize,
    end: Option<Blame>,
}

struct End<M> {
    machine: M,
    input: BytesMut,
    landing: Option<Landing>,
    /// Sent, and not arrived.
    wire: Vec<u8>,
}

impl<M: Machine> End<M> {
    fn new(machine: M) -> End<M> {
        let (input, landing, wire) = Default::default();
        End { machine, input, landing, wire }
    }

    fn act(&mut self) -> Result<(), Blame> {
        let mut context = Context::from_waker(Waker::noop());
        while self.machine.poll_user(&mut context)?.is_ready() {
            self.take_output();
        }
        self.take_output();
        Ok(())
    }
}

impl<M> End<M> {
    fn take_output(&mut self)
    where
        M: Machine,
    {
        let mut out = Segments::new();
        while self.machine.poll_output(&mut out, 1 << 20) {}
        out.runs().for_each(|run| self.wire.extend_from_slice(run));
    }

    /// Receives some of `bytes`; how many.
    fn receive(&mut self, bytes: &[u8], now: Instant) -> Result<usize, Blame>
    where
        M: Machine,
    {
        if self.landing.is_none() {
            self.landing = self.machine.landing(&mut self.input);
        }
        if let Some(mut landing) = self.landing.take() {
            let count = landing.put(bytes);
            match landing.wanted() {
                0 => self.machine.landed(now, &mut self.input, landing)?,
                _ => self.landing = Some(landing),
            }
            return Ok(count);
        }
        let limit = match self.machine.deposit(&self.input) {
            Deposit::UpTo(limit) => limit,
            _ => usize::MAX,
        };
        let count = bytes.len().min(limit);
        self.input.extend_from_slice(&bytes[..count]);
        self.machine.handle_input(now, &mut self.input)?;
        while self.machine.has_left() {
            self.machine.handle_input(now, &mut self.input)?;
        }
        Ok(count)
    }
}

impl<D: Device> Pair<D> {
    fn new(session: &Session, portal: &Arc<Portal<D>>) -> Pair<D> {
        let now = Instant::now();
        let initiator = initiator::Connection::new(session, [5; 32], now);
        let target = target::Connection::new(portal.clone(), "127.0.0.1:3260".into(), [7; 33], now);
        let (initiator, target) = (End::new(initiator), End::new(target));
        Pair { initiator, target, chunk: usize::MAX, left: usize::MAX, end: None }
    }

    /// Moves bytes until none move; false once the connection is lost.
    fn drive(&mut self) -> bool {
        if self.end.is_none() {
            self.end = self.try_drive().err();
            if self.end.is_some() {
                self.last_words();
            }
        }
        self.end.is_none() && self.left > 0
    }

    /// What was said last arrives, as far as anything does.
    fn last_words(&mut self) {
        self.target.take_output();
        self.initiator.take_output();
        let (left, now) = (&mut self.left, Instant::now());
        while let Ok(1..) =
            move_some(&mut self.target.wire, &mut self.initiator, 1 << 20, left, now)
        {}
        while let Ok(1..) =
            move_some(&mut self.initiator.wire, &mut self.target, 1 << 20, left, now)
        {}
    }

    fn try_drive(&mut self) -> Result<(), Blame> {
        let now = Instant::now();
        loop {
            let acted = self.initiator.act();
            let to_target = move_some(
                &mut self.initiator.wire,
                &mut self.target,
                self.chunk,
                &mut self.left,
                now,
            );
            let acted_too = self.target.act();
            let to_initiator = move_some(
                &mut self.target.wire,
                &mut self.initiator,
                self.chunk,
                &mut self.left,
                now,
            );
            acted.and(acted_too)?;
            if to_target? + to_initiator? == 0 {
                return Ok(());
            }
        }
    }
}

fn move_some<M: Machine>(
    wire: &mut Vec<u8>,
    to: &mut End<M>,
    chunk: usize,
    left: &mut usize,
    now: Instant,
) -> Result<usize, Blame> {
    let count = wire.len().min(chunk).min(*left);
    if count == 0 {
        return Ok(0);
    }
    let taken = to.receive(&wire[..count], now)?;
    wire.drain(..taken);
    *left -= taken;
    Ok(taken)
}

fn config() -> Config {
    Config {
        initiator: INITIATOR.into(),
        target: Some(TARGET.into()),
        isid: [0x80, 0, 0, 1, 0, 0],
        chap: None,
        mutual: None,
        parameters: Parameters::INITIATOR,
    }
}

fn read(block: u32, blocks: u16) -> Request {
    Request {
        lun: 0,
        cdb: cdb(0x28, block, blocks),
        data_out: Payload::default(),
        data_in: BytesMut::zeroed(usize::from(blocks) * BLOCK),
        is_repeatable: true,
    }
}

fn write(block: u32, data: Vec<u8>) -> Request {
    let blocks = (data.len() / BLOCK) as u16;
    let (data_out, data_in) = (data.into(), BytesMut::new());
    Request { lun: 0, cdb: cdb(0x2a, block, blocks), data_out, data_in, is_repeatable: true }
}

fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

fn now<F: Future>(future: F) -> F::Output {
    poll(pin!(future)).expect("it is done")
}

fn good(result: Result<Done, Lost>) -> BytesMut {
    let done = result.unwrap();
    assert_eq!((done.status, done.sense.len()), (0, 0));
    done.data_in
}

#[test]
fn data_goes_both_ways_whatever_was_agreed_on() {
    for variant in 0..32 {
        let is = |bit: u32| variant >> bit & 1 == 1;
        let mut parameters =
            Parameters { initial_r2t: is(0), immediate_data: is(1), ..Parameters::INITIATOR };
        parameters.header_digest = if is(2) { Digest::Required } else { Digest::No };
        parameters.data_digest = if is(3) { Digest::Preferred } else { Digest::Allowed };
        if is(4) {
            parameters.segment_bytes_max = 1000;
            parameters.first_burst_bytes_max = 2048;
            parameters.burst_bytes_max = 4096;
        }
        let toy = Toy::new(512);
        let portal = portal_with(
            &toy,
            Access::default(),
            Parameters { segment_bytes_max: 1500, ..Parameters::TARGET },
        );
        let session = Session::new(Config { parameters, ..config() });
        let mut pair = Pair::new(&session, &portal);
        pair.chunk = if is(0) { 700 } else { usize::MAX };
        let data: Vec<u8> = (0..100 * BLOCK).map(|at| ((at * 31) >> 3) as u8).collect();
        let written = session.command(write(7, data.clone()));
        pair.drive();
        assert_eq!(pair.end, None, "{variant}");
        good(now(written));
        assert!(toy.state.lock().unwrap().bytes[7 * BLOCK..107 * BLOCK] == data);
        let back = session.command(read(7, 100));
        assert!(pair.drive());
        assert!(good(now(back)) == data, "{variant}");
    }
}

#[test]
fn read_data_is_received_where_it_belongs() {
    let toy = Toy::new(4096);
    let session = Session::new(config());
    let portal = portal(&toy);
    let mut pair = Pair::new(&session, &portal);
    pair.drive();
    let request = read(0, 2048);
    let place = request.data_in.as_ptr();
    let call = session.command(request);
    let small = session.command(read(9, 1));
    pair.drive();
    let data = good(now(call));
    assert_eq!(
        (data.as_ptr(), data.len()),
        (place, 2048 * BLOCK),
        "the buffer is the one that was given"
    );
    assert!(data[..] == toy.state.lock().unwrap().bytes[..2048 * BLOCK]);
    assert_eq!(good(now(small))[..], [9; BLOCK]);
    drop(pair);
    let (landed, copied) = session.placed();
    assert_eq!((landed, copied), (2048 * BLOCK as u64, BLOCK as u64));
}

#[test]
fn the_data_of_a_write_stays_where_it_came() {
    // What the store is given are parts of the buffers that the bytes arrived in: as many pieces as PDUs.
    let toy = Toy::new(4096);
    let session = Session::new(config());
    let portal = portal(&toy);
    let mut pair = Pair::new(&session, &portal);
    pair.drive();
    let call = session.command(write(0, vec![3; 2048 * BLOCK]));
    pair.drive();
    good(now(call));
    assert_eq!(toy.state.lock().unwrap().pieces, 1, "one PDU of a mebibyte, unsolicited");
}

#[test]
fn logins_that_cannot_succeed_say_why() {
    let toy = Toy::new(8);
    let chap = |secret: &str| Some(credentials("bob", secret));
    let access = Access {
        initiators: None,
        chap: vec![credentials("bob", "0123456789abcdef")],
        mutual: Some(credentials("disk", "fedcba9876543210")),
        ..Access::default()
    };
    let portal = portal_with(&toy, access, Parameters::TARGET);
    let refusal = |config: Config| {
        let session = Session::new(config);
        let mut pair = Pair::new(&session, &portal);
        pair.drive();
        (pair.end.is_some(), session.take_refusal())
    };
    let right = Config { chap: chap("0123456789abcdef"), ..config() };
    let mutual = |name, secret| Config { mutual: Some(credentials(name, secret)), ..right.clone() };
    assert_eq!(refusal(right.clone()), (false, None));
    assert_eq!(refusal(mutual("disk", "fedcba9876543210")), (false, None));
    assert_eq!(refusal(mutual("disk", "fedcba987654321X")), (true, Some(Refusal::Impostor)));
    assert_eq!(refusal(mutual("other", "fedcba9876543210")), (true, Some(Refusal::Impostor)));
    let wrong = Config { chap: chap("0123456789abcdeX"), ..config() };
    assert_eq!(refusal(wrong), (true, Some(Refusal::Refused(0x0201))));
    assert_eq!(refusal(config()), (true, Some(Refusal::Refused(0x0201))));
    let nowhere = Config { target: Some("iqn.none".into()), ..right.clone() };
    assert_eq!(refusal(nowhere), (true, Some(Refusal::Refused(0x0203))));
    let address = "10.0.0.2:3260".to_owned();
    line::target(&portal)
        .set_elsewhere(Some(Elsewhere { address: address.clone(), for_good: false }));
    assert_eq!(refusal(right), (true, Some(Refusal::Elsewhere(address))));
}

#[test]
fn a_target_without_secrets_is_no_one_that_must_prove_itself() {
    let toy = Toy::new(8);
    let portal = portal(&toy);
    let secrets = Config { chap: Some(credentials("bob", "0123456789abcdef")), ..config() };
    let session = Session::new(secrets.clone());
    assert!(Pair::new(&session, &portal).drive(), "who need not prove it gets in");
    let mutual = Some(credentials("disk", "fedcba9876543210"));
    let session = Session::new(Config { mutual, ..secrets });
    let mut pair = Pair::new(&session, &portal);
    assert!(!pair.drive());
}

/// A target may say in several PDUs what it agrees to; the initiator asks for the rest with a request that says nothing.
#[test]
fn an_answer_to_a_login_comes_in_parts() {
    let session = Session::new(config());
    let at = Instant::now();
    let mut end = End::new(initiator::Connection::new(&session, [5; 32], at));
    let mut answer = |flags: u8, text: &[u8]| {
        end.act().unwrap();
        let asked = std::mem::take(&mut end.wire);
        let data = Payload::from(text.to_vec());
        let header = Header::LoginResponse {
            flags,
            version_max: 0,
            version_active: 0,
            lengths: Lengths::of_data(data.len()),
            isid: Array([0x80, 0, 0, 1, 0, 0]),
            tsih: 1,
            itt: 0,
            reserved: Default::default(),
            stat_sn: 1,
            exp_cmd_sn: 1,
            max_cmd_sn: 8,
            status: 0,
            reserved_2: Default::default(),
        };
        let mut out = Segments::new();
        pdu::put_with_data(&header, false, &data, Digests::default(), &mut out);
        let bytes: Vec<u8> = out.runs().flatten().copied().collect();
        assert_eq!(end.receive(&bytes, at).unwrap(), bytes.len());
        asked
    };
    const OPERATIONAL: u8 = 1 << 2;
    let text = b"TargetPortalGroupTag=1\0InitialR2T=No\0FirstBurstLength=1024\0";
    let (first, rest) = text.split_at(30);
    assert_eq!(answer(flags::CONTINUE | OPERATIONAL, first)[1], flags::TRANSIT | OPERATIONAL | 3);
    let asked = answer(flags::CONTINUE | OPERATIONAL, &rest[..9]);
    assert_eq!((asked.len(), asked[1]), (48, OPERATIONAL), "it asks for the rest, no more");
    answer(flags::TRANSIT | OPERATIONAL | 3, &rest[9..]);
    // Logged in, with what was agreed on: so much comes unasked.
    let _call = session.command(write(0, vec![1; 4 * BLOCK]));
    end.act().unwrap();
    assert_eq!(end.wire.len(), 48 + 1024);
}

#[test]
fn discovery_finds_targets_and_logs_out() {
    let toy = Toy::new(8);
    let portal = portal(&toy);
    let session = Session::new(Config { target: None, ..config() });
    let mut pair = Pair::new(&session, &portal);
    pair.drive();
    let found = session.targets().unwrap();
    assert_eq!(
        (&found[0].name[..], &found[0].addresses[..]),
        (TARGET, &["127.0.0.1:3260,1".to_owned()][..])
    );
    assert_eq!(session.closed().as_deref(), Some("logged out"));
}

#[test]
fn a_logout_waits_for_what_is_under_way() {
    let toy = Toy::new(8);
    let portal = portal(&toy);
    let session = Session::new(config());
    let mut pair = Pair::new(&session, &portal);
    assert!(pair.drive() && now(session.logged_in()));
    toy.state.lock().unwrap().is_slow = true;
    let call = session.command(read(1, 1));
    session.log_out();
    assert!(pair.drive());
    toy.release();
    pair.drive();
    assert_eq!(good(now(call))[..], [1; BLOCK]);
    assert!(pair.end.is_some());
    assert_eq!(now(session.command(read(0, 1))), Err(Lost::Closed("logged out".into())));
    drop(pair);
    assert!(line::target(&portal).sessions().is_empty());
}

#[test]
fn what_must_not_be_repeated_is_not_sent_again() {
    let toy = Toy::new(8);
    let portal = portal(&toy);
    let session = Session::new(config());
    let mut pair = Pair::new(&session, &portal);
    pair.drive();
    toy.state.lock().unwrap().is_slow = true;
    let once = session.command(Request { is_repeatable: false, ..read(1, 1) });
    let again = session.command(read(2, 1));
    pair.drive();
    drop(pair);
    assert_eq!(now(once), Err(Lost::Unknown));
    toy.state.lock().unwrap().is_slow = false;
    assert!(Pair::new(&session, &portal).drive());
    assert_eq!(good(now(again))[..], [2; BLOCK]);
    let waiting = session.command(read(3, 1));
    session.close("enough");
    assert_eq!(now(waiting), Err(Lost::Closed("enough".into())));
}

/// Does the same work whenever the connection is lost, and checks it against a copy; how many bytes moved.
fn work(
    seed: u64,
    rounds: u8,
    cuts: &mut dyn FnMut(u64) -> usize,
    is_slow: bool,
    chunk: usize,
) -> usize {
    let toy = Toy::new(64);
    toy.state.lock().unwrap().is_slow = is_slow;
    let portal = portal_with(
        &toy,
        Access::default(),
        Parameters { segment_bytes_max: 512, ..Parameters::TARGET },
    );
    let parameters = Parameters {
        initial_r2t: seed & 1 == 1,
        first_burst_bytes_max: 1024,
        burst_bytes_max: 1024,
        data_digest: if seed & 2 == 2 { Digest::Required } else { Digest::No },
        ..Parameters::INITIATOR
    };
    let session = Session::new(Config { parameters, ..config() });
    let mut model = toy.state.lock().unwrap().bytes.clone();
    let mut connections = 0;
    let mut connect = || {
        let mut pair = Pair::new(&session, &portal);
        (pair.left, pair.chunk) = (cuts(connections), chunk);
        connections += 1;
        pair
    };
    let mut pair = connect();
    let mut moved = 0;
    for round in 0..rounds {
        // Two that overlap nothing, at the same time; then the same blocks again in the next round.
        let first = vec![round + 100; 5 * BLOCK];
        let second = vec![round + 200; BLOCK];
        let mut calls: Vec<_> =
            [write(3, first.clone()), write(20, second.clone()), read(40, 40 % 16)]
                .map(|request| Box::pin(session.command(request)))
                .into();
        let mut results = Vec::new();
        while !calls.is_empty() {
            let before = pair.left;
            let lives = pair.drive();
            moved += before - pair.left;
            if !lives {
                // By the cut, or by a login that was on the wire of a connection before.
                let reinstated = Blame::Io("the session was reinstated".into());
                assert!(pair.left == 0 || pair.end == Some(reinstated), "{:?}", pair.end);
                pair.initiator.take_output();
                let next = connect();
                let lost = std::mem::replace(&mut pair, next);
                // The target has not noticed. What was on the wire arrives when the new login has been sent, which waits
                // for the old connection to end.
                let Pair { initiator, mut target, .. } = lost;
                let rest = initiator.wire.clone();
                drop(initiator);
                pair.drive();
                let mut rest = &rest[..];
                while !rest.is_empty() {
                    match target.receive(rest, Instant::now()) {
                        Ok(count) => rest = &rest[count..],
                        Err(_) => break,
                    }
                }
                let _ = target.act();
            } else {
                toy.release();
            }
            calls.retain_mut(|call| match poll(call.as_mut()) {
                Some(result) => {
                    results.push(good(result).len());
                    false
                }
                None => true,
            });
        }
        results.sort();
        assert_eq!(results, [0, 0, 8 * BLOCK]);
        model[3 * BLOCK..8 * BLOCK].copy_from_slice(&first);
        model[20 * BLOCK..21 * BLOCK].copy_from_slice(&second);
        assert!(toy.state.lock().unwrap().bytes == model, "seed {seed}, round {round}");
    }
    // Nothing that was under way on a lost connection comes late.
    while toy.release() {}
    assert!(toy.state.lock().unwrap().bytes == model, "seed {seed}: a write came late");
    moved
}

#[test]
fn a_connection_lost_at_any_byte_loses_and_doubles_no_write() {
    for seed in 0..4 {
        let all = work(seed, 2, &mut |_| usize::MAX, false, usize::MAX);
        for cut in 1..all {
            work(
                seed,
                2,
                &mut |connection| if connection == 0 { cut } else { usize::MAX },
                false,
                usize::MAX,
            );
        }
    }
}

#[test]
fn connections_lost_again_and_again_lose_and_double_no_write() {
    let mut rng = Rng::new(1);
    for seed in 0..seeds(500) {
        let (is_slow, chunk) = (rng.below(2) == 1, 1 + rng.index(3000));
        work(seed, 6, &mut |_| 1 + rng.index(9000), is_slow, chunk);
    }
}

/// COVEY_SEEDS asks for more.
fn seeds(usual: u64) -> u64 {
    std::env::var("COVEY_SEEDS").map_or(usual, |seeds| seeds.parse().unwrap())
}

/// Whatever connections are lost on the way, an initiator learns that the unit has another size before any command succeeds, or
/// that all it knew of the unit is void.
#[test]
fn no_change_of_a_unit_goes_unnoticed_when_connections_are_lost() {
    const CHANGED: [(u8, u8, u8); 2] = [(6, 0x2a, 0x09), (6, 0x29, 0x00)];
    for seed in 0..seeds(200) {
        let mut rng = Rng::new(seed);
        let store = support::Memory::new(1 << 20);
        let unit = Arc::new(Unit::new(support::config(), store.clone(), "").unwrap());
        let portal = Portal::new();
        portal.add(TargetConfig {
            name: TARGET.into(),
            alias: None,
            portal_group: 1,
            device: Arc::new(Units::of(unit)),
            access: Access::default(),
            addresses: Vec::new(),
            parameters: Parameters::TARGET,
        });
        let session = Session::new(config());
        let mut pair = Pair::new(&session, &portal);
        for round in 0..8 {
            store.grow((1 << 20) + (round + 1) * 4096);
            let mut is_told = false;
            loop {
                let ready = Request { cdb: [0; 16], ..read(0, 0) };
                let mut call = Box::pin(session.command(ready));
                let done = loop {
                    if !pair.drive() {
                        pair = Pair::new(&session, &portal);
                        pair.left = 1 + rng.index(1500);
                    }
                    if let Some(done) = poll(call.as_mut()) {
                        break done.unwrap();
                    }
                };
                if done.status == 0 {
                    assert!(is_told, "seed {seed}, round {round}");
                    break;
                }
                let sense = &done.sense;
                is_told |= CHANGED.contains(&(sense[2] & 0xf, sense[12], sense[13]));
            }
        }
    }
}
