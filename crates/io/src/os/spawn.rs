//! Starting programs as their users, and never losing one of their processes.
//!
//! ```text
//!   daemon ──► starter ──fork──► keeper ──fork──► program, as its user
//!      ◄───────────── events ──────┘  ▲              └── whatever it starts
//!      ────────────── signals ───────►│◄── orphans come back to it
//! ```
//!
//! The [`Starter`] is forked when the daemon begins: a small process of one thread, so that forking costs
//! little and copies nothing of what the daemon holds later. For each program it forks a keeper, which
//! starts the program and takes in every process that loses its parent (it is their subreaper). The keeper
//! ends all of them when it is told to, and when the daemon is gone: its end of their socket closes. A
//! keeper runs as the daemon's user, so the program's user cannot end it where the daemon is root.
//!
//! A program runs with the user, group and supplementary groups that it was asked to, in a session of its
//! own, with every signal as usual, limits lowered and no open file but its three. A daemon that
//! is not root starts programs as its own user only.

mod child;
mod family;
mod keeper;
mod pipe;
mod request;
mod starter;
mod talk;

pub use pipe::Pipe;
pub use request::{Command, Stdio, WindowSize};
pub use starter::Starter;
pub use talk::{Event, Keeper, Stage};

/// A program that was asked for: its keeper, and the daemon's ends of its input and output.
#[derive(Debug)]
pub struct Started {
    /// Says when it has started and ended, and is told signals.
    pub keeper: Keeper,
    /// Its input; the terminal where it has one.
    pub stdin: Pipe,
    /// Its output; the terminal where it has one.
    pub stdout: Pipe,
    /// Its errors, where they are apart.
    pub stderr: Option<Pipe>,
}

#[cfg(test)]
mod tests;
