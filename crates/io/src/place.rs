//! When a thread that answers requests moves to the CPU of whoever it answers.
//!
//! Two that talk in turn never work at the same time. On two CPUs each message wakes the other one, which
//! costs an interrupt and, in a virtual machine, an exit; on one CPU it costs a switch. The scheduler
//! always prefers the idle CPU, so who knows that it is a conversation must say so. [`Placement`]
//! decides, from nothing but the requests and the time; `os::place` does it.
//!
//! ```text
//!              WINDOW alone                 faster by a tenth
//!   Watching ───────────────► Trial (Join) ──────────────────► Settled ──┐ late (Meet)
//!      ▲ ▲                      │ not faster (Leave)              │  ▲────┘
//!      │ └──────── Resting ◄────┘                                 │ a crowd, or after SETTLED_MAX (Leave)
//!      └──────────────────────────────────────────────────────────┘
//! ```
//!
//! What always holds:
//! - it joins only where [`WINDOW`] requests came in turn, almost all of them small and from one caller;
//! - it stays only where it measured that requests come faster than before;
//! - it meets the caller only when a request that was awaited comes late: that costs something. Who is here comes in time, or
//!   its request is there when the CPU is left to this thread;
//! - what disturbs a conversation ends it when it comes often: [`DISTURBED_MAX`] times in some
//!   [`CALM`] requests each. A tree of files has a large one here and there, and a script many programs;
//! - each attempt that did not help doubles the time until the next one.
//!
//! How fast requests come is the median of the times between two of them: a file that is larger than others, or a program that
//! computes for a moment, says nothing about it.

use std::time::{Duration, Instant};

/// What is to be done after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Nothing.
    Stay,
    /// Go to the caller's CPU; [`Placement::refused`] where that cannot be done.
    Join,
    /// Be where the caller is: have it come, or go there.
    Meet,
    /// Take back what [`Act::Join`] did.
    Leave,
}

/// How much a conversation was disturbed lately.
#[derive(Debug, Default)]
pub struct Disturbance {
    level: u32,
    /// Requests in turn, of which each [`CALM`] take something back.
    calm: u32,
}

impl Disturbance {
    /// A request came in turn.
    pub fn in_turn(&mut self) {
        self.calm = self.calm.wrapping_add(1);
        if self.calm.is_multiple_of(CALM) {
            self.level = self.level.saturating_sub(1);
        }
    }

    /// Something has disturbed it. Whether that was once too often: then it begins anew.
    pub fn grows(&mut self, weight: u32) -> bool {
        self.level += weight;
        let is_too_much = self.level >= DISTURBED_MAX;
        if is_too_much {
            self.level = 0;
        }
        is_too_much
    }
}

/// The decision for one thread.
#[derive(Debug)]
pub struct Placement {
    state: State,
    /// Who asked last.
    caller: Option<u64>,
    /// Requests since the state began.
    count: u32,
    disturbance: Disturbance,
    pace: Pace,
    /// How long the next rest is.
    rest: Duration,
    /// It rests because it was impossible, or did harm.
    was_refused: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Counts requests that come alone.
    Watching,
    /// Has joined the caller. Requests came this long after each other before.
    Trial(Duration),
    /// It is faster.
    Settled(Stay),
    /// It was not, and is not tried again until then.
    Resting(Instant),
}

/// The time that it is known to be faster.
#[derive(Clone, Copy, Debug)]
struct Stay {
    /// Until then it is not tried without.
    until: Instant,
    /// How long after each other requests come.
    usual: Duration,
    /// Requests until it is looked at again whether they are slower than that.
    patience: u32,
}

/// How fast requests come.
#[derive(Debug, Default)]
struct Pace {
    last: Option<Instant>,
    gaps: Vec<Duration>,
}

impl Pace {
    /// A request has come: the time since the one before; and once a [`WINDOW`] of them has, the median of these times.
    fn note(&mut self, at: Instant) -> (Duration, Option<Duration>) {
        let Some(last) = self.last.replace(at) else { return (Duration::ZERO, None) };
        let gap = at - last;
        self.gaps.push(gap);
        if self.gaps.len() < WINDOW as usize {
            return (gap, None);
        }
        let (_, median, _) = self.gaps.select_nth_unstable(WINDOW as usize / 2);
        let median = *median;
        self.gaps.clear();
        (gap, Some(median))
    }

    fn restart(&mut self) {
        self.last = None;
        self.gaps.clear();
    }
}

impl Default for Placement {
    fn default() -> Self {
        Placement {
            state: State::Watching,
            caller: None,
            count: 0,
            disturbance: Disturbance::default(),
            pace: Pace::default(),
            rest: REST_MIN,
            was_refused: false,
        }
    }
}

impl Placement {
    /// A request came from `caller`, and nobody else waited for an answer. `was_awaited` says whether it was looked for in vain
    /// before. The clock is looked at now and then only, where it rests.
    pub fn alone(&mut self, caller: u64, was_awaited: bool, now: impl Fn() -> Instant) -> Act {
        let before = self.caller.replace(caller);
        if before.is_some_and(|before| before != caller) {
            self.forgive();
            let act = self.disturb(1);
            let has_joined = matches!(self.state, State::Trial(_) | State::Settled(_));
            // The next one may run elsewhere.
            return if has_joined { Act::Meet } else { act };
        }
        self.disturbance.in_turn();
        self.count += 1;
        match self.state {
            State::Watching => self.watch(now()),
            State::Trial(before) => self.try_out(before, was_awaited, now()),
            State::Settled(stay) => self.look(stay, was_awaited, now()),
            State::Resting(until) => {
                if self.count.is_multiple_of(WINDOW) && now() >= until {
                    self.begin(State::Watching);
                }
                Act::Stay
            }
        }
    }

    /// Much data came or went with a request.
    pub fn large(&mut self) -> Act {
        self.disturb(1)
    }

    /// A request came while another one waited.
    pub fn crowd(&mut self) -> Act {
        self.disturb(2)
    }

    fn disturb(&mut self, weight: u32) -> Act {
        if !self.disturbance.grows(weight) {
            return Act::Stay;
        }
        match self.state {
            State::Watching => self.begin(State::Watching),
            State::Resting(_) => {}
            State::Trial(_) | State::Settled(_) => {
                self.begin(State::Watching);
                return Act::Leave;
            }
        }
        Act::Stay
    }

    /// The caller could not be joined.
    pub fn refused(&mut self, now: Instant) {
        self.rest = self.rest.max(REFUSED_MIN);
        self.starved(now);
    }

    /// Somebody had to take back what was joined because the thread did not get to run.
    pub fn starved(&mut self, now: Instant) {
        self.begin_rest(now);
        self.was_refused = true;
    }

    /// Somebody took back what was joined, because no request came any more.
    pub fn paused(&mut self) {
        if matches!(self.state, State::Trial(_) | State::Settled(_)) {
            self.begin(State::Watching);
        }
    }

    /// What did not help one caller may help the next one; what did harm may not.
    fn forgive(&mut self) {
        if matches!(self.state, State::Resting(_)) && !self.was_refused {
            self.rest = REST_MIN;
            self.begin(State::Watching);
        }
    }

    fn watch(&mut self, now: Instant) -> Act {
        match self.pace.note(now) {
            (_, Some(gap)) if gap <= GAP_MAX => {
                self.begin(State::Trial(gap));
                Act::Join
            }
            _ => Act::Stay,
        }
    }

    fn try_out(&mut self, before: Duration, was_awaited: bool, now: Instant) -> Act {
        // The first ones still pay for the move, and for whoever has not come yet.
        if self.count <= SETTLING {
            return if self.count.is_multiple_of(PATIENCE) { Act::Meet } else { Act::Stay };
        }
        match self.pace.note(now) {
            (gap, None) => {
                let is_late = was_awaited && is_slower(gap, before);
                if is_late && self.count.is_multiple_of(PATIENCE) { Act::Meet } else { Act::Stay }
            }
            (_, Some(gap)) if gap * 10 <= before * 9 => {
                self.rest = REST_MIN;
                let until = now + SETTLED_MAX;
                self.begin(State::Settled(Stay { until, usual: gap, patience: 0 }));
                Act::Stay
            }
            (_, Some(_)) => {
                self.begin_rest(now);
                Act::Leave
            }
        }
    }

    fn look(&mut self, mut stay: Stay, was_awaited: bool, now: Instant) -> Act {
        let (gap, median) = self.pace.note(now);
        if median.is_some() && now >= stay.until {
            self.begin(State::Watching);
            return Act::Leave;
        }
        stay.usual = median.unwrap_or(stay.usual);
        stay.patience = stay.patience.saturating_sub(1);
        let meets = was_awaited && stay.patience == 0 && is_slower(gap, stay.usual);
        if meets {
            stay.patience = PATIENCE;
        }
        self.state = State::Settled(stay);
        if meets { Act::Meet } else { Act::Stay }
    }

    fn begin(&mut self, state: State) {
        (self.state, self.count) = (state, 0);
        self.pace.restart();
    }

    fn begin_rest(&mut self, now: Instant) {
        self.was_refused = false;
        self.begin(State::Resting(now + self.rest));
        self.rest = (self.rest * 2).min(REST_MAX);
    }
}

/// Whether a request came so late that the caller may have gone elsewhere: half as late again as they do.
fn is_slower(gap: Duration, usual: Duration) -> bool {
    gap * 2 > usual * 3
}

/// Requests that make a conversation, and by which its speed is measured.
pub const WINDOW: u32 = 64;
/// So often disturbed, it is no conversation; where two wait at once it counts double.
pub const DISTURBED_MAX: u32 = 4;
/// After so many requests in turn one disturbance less counts.
pub const CALM: u32 = 16;
/// Requests after a move that are not measured.
pub const SETTLING: u32 = 16;
/// Requests between two looks of a server at where its front is.
pub const LOOK: u32 = 64;
/// Where requests come further apart than this it is no busy conversation.
const GAP_MAX: Duration = Duration::from_micros(200);
/// After this time it is tried without again.
const SETTLED_MAX: Duration = Duration::from_secs(2);
/// Requests between two times that the caller is met.
const PATIENCE: u32 = 4;
/// The time until the next attempt, after the first one that did not help.
const REST_MIN: Duration = Duration::from_millis(20);
/// The longest time between attempts.
const REST_MAX: Duration = Duration::from_secs(20);
/// The shortest rest after it was impossible.
const REFUSED_MIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// A conversation in virtual time.
    struct Scene {
        placement: Placement,
        now: Instant,
        /// What a request takes on two CPUs, and on one.
        apart: Duration,
        together: Duration,
        joined: bool,
        /// The caller went to the other CPU, and was not met yet.
        parted: bool,
        /// Its requests are looked for in vain before they come, although it is here.
        is_awaited: bool,
        acts: Vec<Act>,
    }

    impl Scene {
        fn new(apart_us: u64, together_us: u64) -> Scene {
            Scene {
                placement: Placement::default(),
                now: Instant::now(),
                apart: Duration::from_micros(apart_us),
                together: Duration::from_micros(together_us),
                joined: false,
                parted: false,
                is_awaited: true,
                acts: Vec::new(),
            }
        }

        fn ask(&mut self, caller: u64, times: u32) {
            for _ in 0..times {
                self.now += if self.joined && !self.parted { self.together } else { self.apart };
                let was_awaited = self.parted || !self.joined || self.is_awaited;
                let act = self.placement.alone(caller, was_awaited, || self.now);
                self.note(act);
            }
        }

        fn note(&mut self, act: Act) {
            match act {
                Act::Stay => return,
                Act::Join => {
                    assert!(!self.joined, "joined twice");
                    self.joined = true;
                }
                Act::Meet => {
                    assert!(self.joined, "nobody is met");
                    self.parted = false;
                }
                Act::Leave => {
                    assert!(self.joined, "left twice");
                    self.joined = false;
                }
            }
            self.acts.push(act);
        }

        fn joins(&self) -> usize {
            self.acts.iter().filter(|act| **act == Act::Join).count()
        }

        fn meets(&self) -> usize {
            self.acts.iter().filter(|act| **act == Act::Meet).count()
        }
    }

    #[test]
    fn a_lone_caller_is_joined_after_a_window_and_kept_where_that_is_faster() {
        let mut scene = Scene::new(15, 10);
        scene.ask(7, WINDOW);
        assert!(!scene.joined);
        scene.ask(7, 2);
        assert!(scene.joined);
        scene.ask(7, 5000);
        assert!(scene.joined);
        assert_eq!(scene.joins(), 1);
        let meets = scene.meets();
        scene.ask(7, 5000);
        assert_eq!(scene.meets(), meets, "who is faster is here");
    }

    #[test]
    fn a_caller_that_goes_elsewhere_is_met_as_soon_as_it_is_slower() {
        let mut scene = Scene::new(20, 10);
        scene.ask(7, 1000);
        let meets = scene.meets();
        for _ in 0..10 {
            scene.parted = true;
            scene.ask(7, 1);
            assert!(!scene.parted);
            scene.ask(7, 10 * WINDOW);
        }
        assert!(scene.joined);
        assert_eq!(scene.meets(), meets + 10);
    }

    #[test]
    fn a_caller_that_has_more_to_do_between_two_files_is_not_met_for_that() {
        let mut scene = Scene::new(20, 10);
        scene.ask(7, 1000);
        let meets = scene.meets();
        scene.is_awaited = false;
        for _ in 0..1000 {
            scene.now += Duration::from_micros(50);
            scene.ask(7, 6);
        }
        assert!(scene.joined);
        assert_eq!(scene.meets(), meets);
        scene.parted = true;
        scene.ask(7, 1);
        assert!(!scene.parted, "that one was somewhere else");
    }

    #[test]
    fn a_caller_that_never_stays_is_met_now_and_then() {
        let mut scene = Scene::new(20, 10);
        scene.ask(7, 1000);
        let meets = scene.meets();
        for _ in 0..WINDOW {
            scene.parted = true;
            scene.ask(7, 1);
        }
        let met = scene.meets() - meets;
        assert!((4..=(WINDOW / PATIENCE) as usize).contains(&met), "{met} times");
    }

    #[test]
    fn who_asks_for_more_than_before_is_met_in_vain_for_a_window_only() {
        let mut scene = Scene::new(20, 10);
        scene.ask(7, 1000);
        let meets = scene.meets();
        scene.together *= 3;
        scene.ask(7, 5000);
        let in_vain = scene.meets() - meets;
        assert!((1..=2 * (WINDOW / PATIENCE) as usize).contains(&in_vain), "{in_vain} times");
    }

    #[test]
    fn a_few_slow_requests_change_nothing() {
        let mut scene = Scene::new(15, 10);
        for _ in 0..1000 {
            scene.ask(7, 9);
            scene.now += Duration::from_millis(1);
        }
        assert!(scene.joined);
        assert_eq!(scene.joins(), 1);
    }

    #[test]
    fn what_is_hardly_faster_is_left_and_tried_less_and_less_often() {
        let mut scene = Scene::new(100, 95);
        // Ten seconds.
        scene.ask(7, 100_000);
        assert!(!scene.joined);
        assert!((5..=12).contains(&scene.joins()), "{} attempts", scene.joins());
    }

    #[test]
    fn a_tenth_faster_is_enough() {
        let mut scene = Scene::new(100, 90);
        scene.ask(7, 1000);
        assert!(scene.joined);
    }

    #[test]
    fn a_crowd_ends_it() {
        let mut scene = Scene::new(15, 10);
        scene.ask(7, 1000);
        assert!(scene.joined);
        assert_eq!(scene.placement.crowd(), Act::Stay, "once is chance");
        let act = scene.placement.crowd();
        assert_eq!(act, Act::Leave);
        scene.note(act);
        assert_eq!(scene.placement.crowd(), Act::Stay);
        scene.ask(7, WINDOW / 2);
        assert!(!scene.joined, "and it begins anew");
    }

    #[test]
    fn a_large_request_here_and_there_ends_nothing_and_a_stream_does() {
        let mut scene = Scene::new(15, 10);
        scene.ask(7, 1000);
        for _ in 0..100 {
            assert_eq!(scene.placement.large(), Act::Stay);
            scene.ask(7, CALM);
        }
        assert!(scene.joined);
        for _ in 0..DISTURBED_MAX {
            let act = scene.placement.large();
            scene.note(act);
        }
        assert!(!scene.joined);
    }

    #[test]
    fn one_program_after_another_is_one_conversation() {
        let mut scene = Scene::new(15, 10);
        for program in 0..100 {
            scene.ask(program, 2 * CALM);
        }
        assert!(scene.joined);
        assert_eq!(scene.joins(), 1);
    }

    #[test]
    fn the_next_caller_is_met() {
        let mut scene = Scene::new(15, 10);
        scene.ask(7, 1000);
        let acts = scene.acts.len();
        scene.ask(8, 1);
        assert_eq!(scene.acts[acts..], [Act::Meet]);
    }

    #[test]
    fn callers_in_turn_are_never_joined() {
        let mut scene = Scene::new(15, 10);
        for round in 0..10_000 {
            scene.ask(round % 2, CALM / 4);
        }
        assert_eq!(scene.joins(), 0);
    }

    #[test]
    fn slow_requests_are_no_conversation() {
        let mut scene = Scene::new(201, 100);
        scene.ask(7, 10_000);
        assert_eq!(scene.joins(), 0);
    }

    #[test]
    fn it_is_asked_again_every_two_seconds_whether_it_is_still_faster() {
        let mut scene = Scene::new(15, 10);
        // Three seconds.
        scene.ask(7, 300_000);
        assert_eq!(scene.joins(), 2);
        // The caller computes now, which is not our time to save.
        (scene.apart, scene.together) = (scene.apart * 4, scene.together * 6);
        scene.ask(7, 100_000);
        assert!(!scene.joined);
    }

    #[test]
    fn where_it_is_impossible_or_does_harm_there_is_a_long_rest() {
        let mut scene = Scene::new(15, 10);
        scene.ask(7, WINDOW + 2);
        assert!(scene.joined);
        scene.joined = false;
        scene.placement.refused(scene.now);
        // Not quite a second.
        scene.ask(7, 66_000);
        assert_eq!(scene.joins(), 1);
        scene.ask(7, 2000);
        assert_eq!(scene.joins(), 2);
    }

    #[test]
    fn what_did_not_help_one_caller_is_tried_with_the_next_one() {
        let mut scene = Scene::new(100, 100);
        scene.ask(7, 300);
        assert!(!scene.joined && scene.joins() == 1);
        scene.together /= 2;
        scene.ask(8, WINDOW + 3);
        assert!(scene.joined);
    }

    #[test]
    fn a_pause_begins_anew_without_a_rest() {
        let mut scene = Scene::new(15, 10);
        scene.ask(7, 1000);
        scene.joined = false;
        scene.placement.paused();
        scene.ask(7, WINDOW + 2);
        assert!(scene.joined);
    }
}
