//! What a hostile neighbour tries, and what a failing disk does: one file per area.

mod support;

#[path = "hostile/disks.rs"]
mod disks;

#[path = "hostile/figures.rs"]
mod figures;

#[path = "hostile/nine.rs"]
mod nine;

#[path = "hostile/starts.rs"]
mod starts;

#[path = "hostile/terminal.rs"]
mod terminal;

#[path = "hostile/users.rs"]
mod users;

#[path = "hostile/stores.rs"]
mod stores;

#[path = "hostile/attack.rs"]
mod attack;

#[path = "hostile/strangers.rs"]
mod strangers;
