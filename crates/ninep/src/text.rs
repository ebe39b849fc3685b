//! Text files: made when they are opened, so that an open file is one consistent snapshot however it is
//! read.

use crate::message::Qid;
use crate::tree::{
    Attach, Attr, Data, Errno, O_TRUNC, Opened, Outcome, Read, Result, S_IFREG, SetAttr, Time,
    Tree, User,
};
use covey_wire::Bytes;
use std::rc::Rc;

/// A tree whose root is one text file.
pub struct Text {
    make: Box<dyn Fn() -> Bytes>,
    /// Who may read it, if not everyone.
    readers: Option<Readers>,
}

type Readers = Box<dyn Fn(&User) -> bool>;

impl Text {
    /// A file whose text `make` makes, for each open anew.
    pub fn new<T: Into<Bytes>>(make: impl Fn() -> T + 'static) -> Text {
        Text { make: Box::new(move || make().into()), readers: None }
    }

    /// Only for users who are `readers`.
    pub fn only_for(self, readers: impl Fn(&User) -> bool + 'static) -> Text {
        Text { readers: Some(Box::new(readers)), ..self }
    }

    fn check_reader(&self, user: &User) -> Result<()> {
        match &self.readers {
            Some(readers) if !readers(user) => {
                let what = format!("user {} may not read this file", user.uid);
                Err(Errno::because(Errno::EACCES, what))
            }
            _ => Ok(()),
        }
    }
}

impl Tree for Text {
    /// The snapshot, once opened.
    type Node = Option<Bytes>;

    fn attach(&self, attach: Attach) -> Outcome<(User, Qid, Self::Node)> {
        Ok((claimed(&attach), QID, None)).into()
    }

    fn enter(&self, user: &User, _: Attach) -> Outcome<(User, Qid, Self::Node)> {
        Ok((user.clone(), QID, None)).into()
    }

    fn root_kind(&self) -> u8 {
        Qid::FILE
    }

    fn getattr(&self, user: &Rc<User>, node: &Self::Node) -> Outcome<Attr> {
        let size = || node.clone().unwrap_or_else(|| (self.make)()).len();
        let size = if self.check_reader(user).is_ok() { size() } else { 0 };
        Ok(attr(if self.readers.is_some() { 0o400 } else { 0o444 }, size)).into()
    }

    fn setattr(&self, _: &Rc<User>, _: &Self::Node, _: SetAttr) -> Outcome<()> {
        Errno::EROFS.into()
    }

    fn open(&self, user: &Rc<User>, _: &Self::Node, flags: u32) -> Outcome<Opened<Self::Node>> {
        Outcome::now(|| {
            self.check_reader(user)?;
            check_read_only(flags)?;
            Ok(Opened { qid: QID, node: Some((self.make)()), blocking: false })
        })
    }

    fn read(&self, _: &Rc<User>, node: &Self::Node, read: Read<'_>) -> Data {
        node.as_ref().map_or(Errno::EBADF.into(), |text| read.of(text))
    }
}

/// EROFS for flags that ask for more than reading.
pub fn check_read_only(flags: u32) -> Result<()> {
    if flags & O_ACCMODE == 0 && flags & O_TRUNC == 0 {
        Ok(())
    } else {
        Err(Errno::because(Errno::EROFS, "the file is a text made by the server"))
    }
}

/// The attributes of a plain file that is made by the server.
pub(crate) fn attr(mode: u32, size: usize) -> Attr {
    let attr = Attr::new(QID.path, S_IFREG | mode, 0, 0, Time::default());
    Attr { size: size as u64, ..attr }
}

/// The user of an attach that no namespace has admitted: whom the kernel or the holder of the key vouches
/// for, else nobody.
pub(crate) fn claimed(attach: &Attach) -> User {
    let claimed = attach.n_uname.filter(|_| attach.peer.has_key);
    let uid = attach.peer.uid.or(claimed).unwrap_or(NOBODY);
    User { uid, gid: uid, groups: vec![uid] }
}

pub(crate) const QID: Qid = Qid { kind: Qid::FILE, version: 0, path: 1 };
pub(crate) const O_ACCMODE: u32 = 3;
/// What Linux calls a user that has no number here.
const NOBODY: u32 = 65534;
