//! Extended attributes of a file that a fid stands for: Txattrwalk, Txattrcreate and what follows them.

use super::session::Result;
use super::{CallError, Conn, Fid};
use crate::message::{Message, NOFID};
use crate::tree::{Errno, SetXattr, XATTR_BYTES_MAX};
use covey_wire::{Bytes, BytesMut, List, Name};

impl Conn {
    /// The names of the attributes of `fid`'s file.
    pub async fn list_xattrs(&self, fid: u32) -> Result<Vec<Name>> {
        let list = self.read_xattr(fid, Name::EMPTY).await?;
        let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(|name| Name::from(list.slice_ref(name))).collect())
    }

    /// The value of an attribute: ENODATA when there is none.
    pub async fn xattr(&self, fid: u32, name: Name) -> Result<Bytes> {
        if name.is_empty() {
            Err(Errno::because(Errno::ERANGE, "the attribute has no name").into())
        } else {
            self.read_xattr(fid, name).await
        }
    }

    /// Sets an attribute. An empty value with [`SetXattr::Replace`] would remove it: EINVAL.
    pub async fn set_xattr(
        &self,
        fid: u32,
        name: Name,
        value: Bytes,
        rule: SetXattr,
    ) -> Result<()> {
        if value.is_empty() && rule == SetXattr::Replace {
            let what = "9P cannot tell an empty value that replaces from a removal";
            return Err(Errno::because(Errno::EINVAL, what).into());
        }
        let flags = match rule {
            SetXattr::Any => 0,
            SetXattr::Create => 1,
            SetXattr::Replace => XATTR_REPLACE,
        };
        self.write_xattr(fid, name, value, flags).await
    }

    /// Removes an attribute: ENODATA when there is none.
    pub async fn remove_xattr(&self, fid: u32, name: Name) -> Result<()> {
        self.write_xattr(fid, name, Bytes::new(), XATTR_REPLACE).await
    }

    async fn read_xattr(&self, fid: u32, name: Name) -> Result<Bytes> {
        let open = Fid::new(self);
        let walk = Message::Txattrwalk { fid, newfid: open.number(), name };
        let size = match self.call(walk).await? {
            Message::Rxattrwalk { size } if size <= XATTR_BYTES_MAX as u64 => size as usize,
            other => return Err(odd(&other)),
        };
        let mut value = BytesMut::new();
        while value.len() < size {
            let (offset, left) = (value.len() as u64, (size - value.len()) as u32);
            let count = left.min(self.payload_max());
            let read = Message::Tread { fid: open.number(), offset, count };
            match self.call(read).await? {
                Message::Rread { data } if !data.is_empty() && data.len() <= count as usize => {
                    value.extend_from_slice(&data.into_bytes());
                }
                other => return Err(odd(&other)),
            }
        }
        Ok(value.freeze())
    }

    async fn write_xattr(&self, fid: u32, name: Name, value: Bytes, flags: u32) -> Result<()> {
        debug_assert_ne!(fid, NOFID);
        let new = Fid::new(self);
        let names = List(Vec::new());
        self.call(Message::Twalk { fid, newfid: new.number(), names }).await?;
        let attr_size = value.len() as u64;
        let create = Message::Txattrcreate { fid: new.number(), name, attr_size, flags };
        self.call(create).await?;
        let mut at = 0;
        while at < value.len() {
            let end = value.len().min(at + self.payload_max() as usize);
            let (fid, offset) = (new.number(), at as u64);
            let data = value.slice(at..end).into();
            match self.call(Message::Twrite { fid, offset, data }).await? {
                Message::Rwrite { count } if count > 0 && count as usize <= end - at => {
                    at += count as usize;
                }
                other => return Err(odd(&other)),
            }
        }
        // The clunk is what sets it.
        new.clunk().await
    }
}

fn odd(reply: &Message) -> CallError {
    Errno::because(Errno::EPROTO, format!("the server answered with {reply:?}")).into()
}

const XATTR_REPLACE: u32 = 2;
