//! What a hostile neighbour tries: other users of a machine, one file per area.

mod support;

#[path = "hostile/nine.rs"]
mod nine;

#[path = "hostile/users.rs"]
mod users;

#[path = "hostile/stores.rs"]
mod stores;
