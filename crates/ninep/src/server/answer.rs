//! The tree's answers, of all types in one: what came at once is never boxed, what comes later is
//! never boxed twice.

use super::classic::Created;
use super::tasks::Waits;
use crate::message::{Qid, Stat};
use crate::tree::{Attr, Entry, Lock, LockStatus, Opened, Outcome, Result, Statfs, User};
use covey_wire::{Bytes, Name};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

type Later<T> = Pin<Box<dyn Future<Output = Result<T>>>>;

/// A type that some method of the tree answers with.
pub(super) trait Answers<N>: Sized {
    fn answer(self) -> Answer<N>;
    fn wait(later: Later<Self>) -> Wait<N>;
}

macro_rules! answers {
    ($($name:ident($type:ty);)*) => {
        /// What the tree answered.
        pub(super) enum Answer<N> { $($name($type)),* }

        /// What the tree will answer.
        pub(super) enum Wait<N> { $($name(Later<$type>)),* }

        $(impl<N> Answers<N> for $type {
            fn answer(self) -> Answer<N> {
                Answer::$name(self)
            }
            fn wait(later: Later<Self>) -> Wait<N> {
                Wait::$name(later)
            }
        })*

        impl<N> Waits for Wait<N> {
            type Output = Result<Answer<N>>;
            fn poll(&mut self, context: &mut Context<'_>) -> Poll<Self::Output> {
                match self {
                    $(Wait::$name(later) =>
                        later.as_mut().poll(context).map(|result| result.map(Answer::$name)),)*
                }
            }
        }
    };
}
answers! {
    Attached((User, Qid, N));
    Walked(Vec<(Qid, N)>);
    Opened(Opened<N>);
    Attr(Attr);
    Done(());
    Made(Qid);
    Data(Bytes);
    Count(u32);
    Entries(Vec<Entry>);
    Target(Name);
    Statfs(Statfs);
    LockStatus(LockStatus);
    Lock(Lock);
    Names(Vec<Name>);
    Stat(Box<Stat>);
    Listed((Bytes, u64));
    Created(Created<N>);
}

/// An outcome of any type.
pub(super) enum Asked<N> {
    Now(Result<Answer<N>>),
    Later(Wait<N>),
}

impl<N, T: Answers<N>> From<Outcome<T>> for Asked<N> {
    fn from(outcome: Outcome<T>) -> Self {
        match outcome {
            Outcome::Now(result) => Asked::Now(result.map(T::answer)),
            Outcome::Later(later) => Asked::Later(T::wait(later)),
        }
    }
}
