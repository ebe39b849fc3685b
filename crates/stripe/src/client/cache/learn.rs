//! What answers tell.

use super::known::{Found, Known, Names};
use super::scope::Scope;
use super::{State, is_dots};
use crate::ops::{Content, DirEntry, Id, InlinePiece, Inode, Op, Reply, step};
use covey_wire::{List, Name, Payload};
use std::time::Instant;

/// An answer being taken in.
pub(super) struct Learning {
    pub until: Instant,
    /// The count of own changes when it was asked for.
    pub clock: u64,
    pub now: Instant,
    /// No other own change met the one that this answers.
    pub alone: bool,
    /// The file that it has made, of which there was none, or directories in which it changed names: no other own change met
    /// these.
    pub made: Vec<Id>,
    /// The names of which there was one.
    pub met: Vec<Name>,
}

impl State {
    pub(super) fn learn(&mut self, lease: &Learning, scope: &Scope, op: &Op, reply: &Reply) {
        match (op, reply) {
            (
                Op::Create { parent, name, .. } | Op::CreateWrite { parent, name, .. },
                Reply::Created { inode, created },
            ) => {
                self.learn_made(lease, scope, inode, *created);
                self.learn_name(lease, *parent, name, Some(inode.id));
                if let (Op::CreateWrite { data, .. }, true) = (op, created) {
                    self.learn_content(lease, inode.id, data);
                }
            }
            (
                Op::Make { parent, name, pieces: List(pieces), data, .. },
                Reply::Created { inode, .. },
            ) => {
                self.learn_own(lease, scope, inode);
                self.learn_name(lease, *parent, name, Some(inode.id));
                self.learn_written(lease, inode.id, pieces, data);
            }
            (Op::Alone { .. }, Reply::Alone { dir, .. }) => self.learn_own(lease, scope, dir),
            (Op::MakeDir { parent, name, .. }, Reply::Alone { dir, .. }) => {
                self.learn_made(lease, scope, dir, true);
                self.learn_name(lease, *parent, name, Some(dir.id));
            }
            (
                Op::WriteInline { pieces: List(pieces), data, .. }
                | Op::Amend { pieces: List(pieces), data, .. },
                Reply::Node { inode },
            ) => {
                self.learn_own(lease, scope, inode);
                self.learn_written(lease, inode.id, pieces, data);
            }
            (Op::Link { parent, name, .. }, Reply::Node { inode }) => {
                self.learn_own(lease, scope, inode);
                self.learn_name(lease, *parent, name, Some(inode.id));
            }
            (Op::Unlink { parent, name, .. }, Reply::Done {}) => {
                self.learn_name(lease, *parent, name, None);
            }
            (
                Op::Names { dirs: List(dirs), steps, ids, names },
                Reply::Steps { dirs: told, .. },
            ) => {
                let named = steps.0.iter().zip(&ids.0).zip(dirs.iter().zip(&names.0));
                for ((step, id), (dir, name)) in named {
                    let id = (*step == step::LINK).then_some(*id);
                    self.learn_name(lease, *dir, name, id);
                }
                told.0.iter().for_each(|dir| self.learn_own(lease, scope, dir));
            }
            (
                Op::ReadInline { offset: 0, .. } | Op::OpenRead { .. },
                Reply::Inline { inode, data },
            ) => {
                self.learn_inode(lease, inode);
                self.learn_content(lease, inode.id, data);
            }
            (_, Reply::Node { inode } | Reply::Inline { inode, .. }) => {
                self.learn_own(lease, scope, inode)
            }
            (Op::Lookup { name, .. }, Reply::Found { dir, inode, entries, complete, contents }) => {
                self.learn_inode(lease, dir);
                self.learn_entries(lease, dir.id, &entries.0, *complete);
                self.learn_found(lease, dir.id, name, inode.as_ref(), entries.0.len());
                if let Some(known) = self.find(dir.id, lease.now) {
                    known.names.ahead.came_contents(contents.0.len());
                }
                self.learn_contents(lease, &contents.0);
            }
            (Op::Readdir { id, cookie, .. }, Reply::Entries { entries, end, .. }) => {
                self.learn_listing(lease, *id, &entries.0, *cookie, *end);
            }
            (Op::ListContents { id, cookie, .. }, Reply::Listed { entries, end, contents, .. }) => {
                self.learn_listing(lease, *id, &entries.0, *cookie, *end);
                if let Some(known) = self.find(*id, lease.now) {
                    known.names.ahead.came_listed(contents.0.len());
                }
                self.learn_contents(lease, &contents.0);
            }
            _ => {}
        }
    }

    /// Of what was made now, or found instead: a directory that is new has nothing in it.
    fn learn_made(&mut self, lease: &Learning, scope: &Scope, inode: &Inode, is_new: bool) {
        self.learn_own(lease, scope, inode);
        // Another of this client may have been told of it meanwhile, and made something in it.
        let is_empty = is_new && inode.is_dir() && self.is_quiet(lease, inode.id);
        if let Some(known) = self.find(inode.id, lease.now).filter(|_| is_empty) {
            known.names = Names::complete();
        }
    }

    fn learn_found(
        &mut self,
        lease: &Learning,
        dir: Id,
        name: &Name,
        inode: Option<&Inode>,
        entries: usize,
    ) {
        if is_dots(name) {
            return inode.into_iter().for_each(|inode| self.learn_inode(lease, inode));
        }
        if let Some(inode) = inode {
            self.learn_inode(lease, inode);
            self.find_as(inode.id, dir, name);
        }
        if self.is_quiet(lease, dir)
            && let Some(known) = self.find(dir, lease.now)
        {
            known.names.insert(name, inode.map(|inode| inode.id));
            if entries > 0 {
                known.names.ahead.came(entries);
            }
        }
    }

    fn learn_listing(
        &mut self,
        lease: &Learning,
        dir: Id,
        entries: &[DirEntry],
        cookie: u64,
        end: bool,
    ) {
        let inodes = entries.iter().filter_map(|entry| entry.inode.as_ref());
        let is_small = |inode: &&Inode| (1..=inode.inline_max()).contains(&inode.size);
        let files = inodes.filter(is_small).count();
        self.walk.listed(dir, files as u32, cookie == 0);
        self.learn_entries(lease, dir, entries, cookie == 0 && end);
    }

    fn learn_entries(&mut self, lease: &Learning, dir: Id, entries: &[DirEntry], complete: bool) {
        let is_quiet = self.is_quiet(lease, dir);
        let mut has_all = complete;
        for entry in entries.iter().filter(|entry| entry.cookie > 2) {
            if let Some(inode) = &entry.inode {
                self.learn_inode(lease, inode);
                self.find_as(inode.id, dir, &entry.name);
            }
            if let (true, Some(known)) = (is_quiet, self.find(dir, lease.now)) {
                has_all &= known.names.insert(&entry.name, Some(entry.id));
            }
        }
        if let (true, true, Some(known)) = (is_quiet, has_all, self.find(dir, lease.now)) {
            known.names.is_complete = true;
        }
    }

    fn find_as(&mut self, id: Id, dir: Id, name: &Name) {
        if let Some(known) = self.known(id) {
            known.found = Some(Found::new(dir, name));
        }
    }

    /// All that a file holds, which came with its attributes.
    fn learn_contents(&mut self, lease: &Learning, contents: &[Content]) {
        contents.iter().for_each(|Content { id, data }| self.learn_content(lease, *id, data));
    }

    fn learn_content(&mut self, lease: &Learning, id: Id, data: &Payload) {
        if !self.is_quiet(lease, id) {
            return;
        }
        let Some(known) = self.find(id, lease.now) else { return };
        known.hold(&data.clone().into_bytes());
        self.held(lease.now, data.len());
    }

    /// What was written as a whole, by nobody else at the same time.
    fn learn_written(&mut self, lease: &Learning, id: Id, pieces: &[InlinePiece], data: &Payload) {
        let is_whole = pieces.len() == 1 && pieces[0].offset == 0;
        let is_alone = lease.alone || lease.made.contains(&id);
        if let (true, Some(known)) = (is_whole && is_alone, self.known(id)) {
            known.hold(&data.clone().into_bytes());
            self.held(lease.now, data.len());
        }
    }

    /// Whether no change of this client's own has touched the file since the answer was asked for.
    fn is_quiet(&mut self, lease: &Learning, id: Id) -> bool {
        let slot = self.slot(id);
        slot.under_way == 0 && slot.changed <= lease.clock && self.all_changed <= lease.clock
    }

    fn learn_inode(&mut self, lease: &Learning, inode: &Inode) {
        if self.is_quiet(lease, inode.id) {
            self.put(lease, inode);
        }
    }

    /// The answer to an own change, of a file that it changed or made.
    pub(super) fn learn_own(&mut self, lease: &Learning, scope: &Scope, inode: &Inode) {
        if !scope.ids.contains(&inode.id) {
            self.learn_inode(lease, inode);
        } else if lease.alone || lease.made.contains(&inode.id) {
            self.put(lease, inode);
        }
    }

    /// The outcome of an own change of a name; its directory is leased anew.
    fn learn_name(&mut self, lease: &Learning, dir: Id, name: &Name, id: Option<Id>) {
        if let Some(known) = self.find(dir, lease.now) {
            known.until = known.until.max(Some(lease.until));
            if !lease.met.contains(name) {
                known.names.settle(name, id);
            }
        }
    }

    fn put(&mut self, lease: &Learning, inode: &Inode) {
        let clock = self.clock;
        match self.known(inode.id) {
            Some(known) => known.renew(lease.now, lease.until, inode, clock),
            None => {
                let known = Known::new(lease.until, inode, clock);
                self.young.insert(inode.id, known);
            }
        }
    }
}
