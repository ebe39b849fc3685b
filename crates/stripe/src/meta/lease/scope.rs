//! Which files an operation changes, and which ones an answer tells of.

use crate::kv::Kv;
use crate::meta::Store;
use crate::meta::fault::Fault;
use crate::ops::{Id, Inode, Lease, Op, ROOT, Reply, TABLE};
use covey_ninep::tree::Errno;
use covey_wire::Name;

impl<K: Kv> Store<K> {
    /// The leases that an operation takes back from others before it is applied: those on all that
    /// it changes, as the names lead now. An operation that will be refused may take some back in
    /// vain.
    pub fn changes(&self, op: &Op) -> Result<Vec<Lease>, Errno> {
        let mut changes = Vec::new();
        self.add_changes(op, &mut changes).map_err(Fault::into_errno)?;
        Ok(changes)
    }

    /// The files that an answer will tell of, as far as the request names them, where it changes
    /// nothing: what a session that is alone with one of them did to it has to be said before.
    pub fn asks_for(&self, op: &Op) -> Result<Vec<Id>, Errno> {
        self.asked_for(op).map_err(Fault::into_errno)
    }

    fn asked_for(&self, op: &Op) -> Result<Vec<Id>, Fault> {
        let (from, names) = match op {
            Op::Getattr { id }
            | Op::Open { id, .. }
            | Op::Getxattr { id, .. }
            | Op::Listxattr { id }
            | Op::Tmpfile { parent: id, .. }
            | Op::ReadInline { id, .. }
            | Op::Readdir { id, plus: false, .. } => {
                return Ok(vec![*id]);
            }
            Op::Look { ids } => return Ok(ids.0.clone()),
            Op::Lookup { parent, name, .. }
            | Op::Create { parent, name, .. }
            | Op::Make { parent, name, .. }
            | Op::MakeDir { parent, name, .. }
            | Op::CreateWrite { parent, name, .. } => (*parent, std::slice::from_ref(name)),
            Op::Walk { from, names } | Op::OpenRead { from, names, .. } => (*from, &names.0[..]),
            _ => return Ok(Vec::new()),
        };
        let mut asked = vec![from];
        for name in names {
            let at = asked.last().copied().unwrap_or(from);
            asked.push(match name.as_bytes() {
                b"." => at,
                b".." => match self.stored(at) {
                    Ok(dir) if dir.inode.is_dir() => dir.inode.parent,
                    // It will be refused.
                    _ => break,
                },
                _ => match self.named(at, name)? {
                    Some(named) => named.id,
                    None => break,
                },
            });
        }
        Ok(asked)
    }

    /// The directory in which an operation that is done has changed a name: whoever changes one
    /// most often changes the next one there.
    pub fn changed_dir(&self, op: &Op) -> Option<Inode> {
        let (Op::Create { parent, .. }
        | Op::Make { parent, .. }
        | Op::MakeDir { parent, .. }
        | Op::Link { parent, .. }
        | Op::Remove { dir: parent, .. }
        | Op::Unlink { parent, .. }) = op
        else {
            return None;
        };
        self.stored(*parent).ok().map(|stored| stored.inode)
    }

    /// Whether a listing of a directory, with inodes, may tell of this file: of a directory it does not that is neither in it nor
    /// above it.
    pub fn may_list(&self, dir: Id, id: Id) -> bool {
        match self.stored(id) {
            Ok(stored) if stored.inode.is_dir() => {
                let is_above = || self.stored(dir).is_ok_and(|dir| dir.inode.parent == id);
                id == dir || stored.inode.parent == dir || is_above()
            }
            Ok(_) => true,
            // It is gone.
            Err(_) => false,
        }
    }

    fn add_changes(&self, op: &Op, changes: &mut Vec<Lease>) -> Result<(), Fault> {
        let said = op.changes();
        changes.extend(said.ids().map(content));
        for (dir, name) in &said.moved {
            self.add_moved(*dir, name, changes)?;
        }
        match op {
            // Sizes move over the places of a session that ends.
            Op::SessionOver { session } => {
                let ids = self.appended_by(*session)?;
                changes.extend(ids.into_iter().map(content));
            }
            // And over those that a client has given up that comes back.
            Op::Hello { session, appends, .. } if *session != 0 => {
                let ids = self.given_up_by(*session, &appends.0)?;
                changes.extend(ids.into_iter().map(content));
            }
            // It changes nothing, but nobody else is to know of them.
            Op::Take { dir, ids } => changes.extend(taken(*dir, &ids.0)),
            // Clients are told of the table.
            Op::KnowStore { .. }
            | Op::Place { .. }
            | Op::AddServer { .. }
            | Op::RaiseChain { .. }
            | Op::MoveChain { .. }
            | Op::Restored {}
                if self.moves_heads(op) =>
            {
                changes.push(content(TABLE));
            }
            // What it repairs, and the root, where it puts what has lost its name.
            Op::Mend { finding } => {
                changes.extend([content(finding.id), content(finding.parent), content(ROOT)]);
                changes.push(Lease { id: finding.id, place: true });
            }
            _ => {}
        }
        Ok(())
    }

    /// A name comes to lead elsewhere: the file's attributes change, and a directory's place.
    fn add_moved(&self, parent: Id, name: &Name, changes: &mut Vec<Lease>) -> Result<(), Fault> {
        if let Some(named) = self.named(parent, name)? {
            changes.push(content(named.id));
            if named.is_dir() {
                changes.push(Lease { id: named.id, place: true });
            }
        }
        Ok(())
    }
}

/// The leases on all that an answer tells of; none where it is not to be remembered.
pub fn told(op: &Op, reply: &Reply) -> Vec<Lease> {
    let mut told = Vec::new();
    match (op, reply) {
        (
            Op::Getattr { .. }
            | Op::Open { .. }
            | Op::Setattr { .. }
            | Op::Extend { .. }
            | Op::WriteInline { .. }
            | Op::Amend { .. }
            | Op::Touch { .. }
            | Op::Fence { .. },
            Reply::Node { inode },
        )
        | (Op::ReadInline { .. } | Op::OpenRead { .. }, Reply::Inline { inode, .. }) => {
            add(inode, &mut told)
        }
        (
            Op::Create { parent, .. }
            | Op::CreateWrite { parent, .. }
            | Op::Make { parent, .. }
            | Op::Link { parent, .. },
            reply,
        ) => {
            if let Reply::Created { inode, .. } | Reply::Node { inode } = reply {
                told.push(content(*parent));
                add(inode, &mut told);
            }
        }
        (Op::Unlink { parent: dir, .. } | Op::Remove { dir, .. }, Reply::Done {}) => {
            told.push(content(*dir));
        }
        (Op::Names { dirs, .. }, Reply::Steps { codes, .. })
            if codes.0.iter().all(|code| *code == 0) =>
        {
            told.extend(dirs.0.iter().map(|dir| content(*dir)));
            told.sort_unstable();
            told.dedup();
        }
        (Op::Take { dir, ids }, Reply::Node { .. }) => told.extend(taken(*dir, &ids.0)),
        (Op::Alone { dir, .. }, Reply::Alone { .. }) => told.push(content(*dir)),
        (Op::MakeDir { parent, .. }, Reply::Alone { dir, .. }) => {
            told.push(content(*parent));
            add(dir, &mut told);
        }
        (Op::Chains {}, Reply::Chains { .. }) => told.push(content(TABLE)),
        (Op::Lookup { .. }, Reply::Found { dir, inode, entries, .. }) => {
            told.push(content(dir.id));
            inode.iter().for_each(|inode| add(inode, &mut told));
            entries.0.iter().flat_map(|entry| &entry.inode).for_each(|inode| add(inode, &mut told));
        }
        (Op::Readdir { id, plus: true, .. }, Reply::Entries { entries, .. })
        | (Op::ListContents { id, .. }, Reply::Listed { entries, .. }) => {
            told.push(content(*id));
            entries.0.iter().flat_map(|entry| &entry.inode).for_each(|inode| add(inode, &mut told));
        }
        _ => {}
    }
    told
}

fn add(inode: &Inode, told: &mut Vec<Lease>) {
    told.push(content(inode.id));
    if inode.is_dir() {
        told.push(Lease { id: inode.id, place: true });
    }
}

fn taken(dir: Id, ids: &[Id]) -> impl Iterator<Item = Lease> {
    std::iter::once(dir).chain(ids.iter().copied()).map(content)
}

fn content(id: Id) -> Lease {
    Lease { id, place: false }
}
