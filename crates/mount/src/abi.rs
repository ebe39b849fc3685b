//! The FUSE message table, protocol 7.31 and later, as `linux/fuse.h` has it.
//!
//! A request is a 40-byte header and a body; [`Request`] holds every body that this mount
//! understands, in the header file's order and words. What is not in the table is answered with
//! ENOSYS, which the kernel remembers. Replies are in [`reply`], flag bits in [`flags`]. The
//! protocol has the byte order of the host; ours is little-endian, as everywhere in Covey.

pub mod flags;
pub mod reply;
#[cfg(test)]
mod tests;

use covey_wire::{Blame, Bytes, Field, Name, Reader, messages, record};

#[cfg(target_endian = "big")]
compile_error!("the FUSE codec is written for little-endian hosts");

record! {
    /// What every request begins with.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Header for () {
        /// Of the whole request, in bytes.
        pub len: u32,
        /// The kernel's number of the message.
        pub opcode: u32,
        /// Names the request in its reply and in INTERRUPT.
        pub unique: u64,
        /// The file it is about: for Covey the file id itself.
        pub nodeid: u64,
        /// Of the calling process; 0 where the kernel acts for itself.
        pub uid: u32,
        /// Of the calling process.
        pub gid: u32,
        /// Of the calling thread; 0 where the kernel acts for itself.
        pub pid: u32,
        /// Length of extensions in units of 8 bytes; none are negotiated.
        pub total_extlen: u16,
        /// Unused.
        pub padding: u16,
    }
}

impl Header {
    /// Encoded size in bytes.
    pub const BYTES: usize = 40;
}

messages! {
    /// A request's body.
    pub enum Request for () {
        /// one name in a directory
        1 Lookup { name: Text },
        /// the kernel drops references to an inode; never answered
        2 Forget { nlookup: u64 },
        /// attributes, of an open file when the flag says so
        3 Getattr { getattr_flags: u32, dummy: Pad, fh: u64 },
        /// changes the attributes that `valid` names
        4 Setattr { valid: u32, padding: Pad, fh: u64, size: u64, lock_owner: u64,
                    atime: u64, mtime: u64, ctime: u64,
                    atimensec: u32, mtimensec: u32, ctimensec: u32,
                    mode: u32, unused4: Pad, uid: u32, gid: u32, unused5: Pad },
        /// a symbolic link's target
        5 Readlink {},
        /// makes a symbolic link
        6 Symlink { name: Text, target: Text },
        /// makes a file of any type without opening it
        8 Mknod { mode: u32, rdev: u32, umask: u32, padding: Pad, name: Text },
        /// makes a directory
        9 Mkdir { mode: u32, umask: u32, name: Text },
        /// removes a name that is no directory
        10 Unlink { name: Text },
        /// removes an empty directory
        11 Rmdir { name: Text },
        /// rename(2)
        12 Rename { newdir: u64, name: Text, newname: Text },
        /// link(2)
        13 Link { oldnodeid: u64, name: Text },
        /// opens a file that is no directory
        14 Open { flags: u32, open_flags: u32 },
        /// read(2), or a page fault
        15 Read { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32,
                  padding: Pad },
        /// write(2), or write-back of mapped pages
        16 Write { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32,
                   padding: Pad, data: Rest },
        /// statfs(2)
        17 Statfs {},
        /// the last reference to an open file is gone
        18 Release { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 },
        /// fsync(2), fdatasync(2) with the flag
        20 Fsync { fh: u64, fsync_flags: u32, padding: Pad },
        /// setxattr(2): the name with its NUL and the value are `rest`
        21 Setxattr { size: u32, flags: u32, rest: Rest },
        /// getxattr(2)
        22 Getxattr { size: u32, padding: Pad, name: Text },
        /// listxattr(2)
        23 Listxattr { size: u32, padding: Pad },
        /// removexattr(2)
        24 Removexattr { name: Text },
        /// close(2) of one descriptor
        25 Flush { fh: u64, unused: Pad, padding: Pad, lock_owner: u64 },
        /// the first request: what the kernel can do. `rest` is empty before 7.36
        26 Init { major: u32, minor: u32, max_readahead: u32, flags: u32, rest: Rest },
        /// opens a directory
        27 Opendir { flags: u32, open_flags: u32 },
        /// entries after the cookie `offset`
        28 Readdir { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32,
                     padding: Pad },
        /// the last reference to an open directory is gone
        29 Releasedir { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 },
        /// fsync(2) of a directory
        30 Fsyncdir { fh: u64, fsync_flags: u32, padding: Pad },
        /// F_GETLK
        31 Getlk { fh: u64, owner: u64, start: u64, end: u64, kind: u32, pid: u32,
                   lk_flags: u32, padding: Pad },
        /// F_SETLK and flock(2) with LOCK_NB
        32 Setlk { fh: u64, owner: u64, start: u64, end: u64, kind: u32, pid: u32,
                   lk_flags: u32, padding: Pad },
        /// F_SETLKW and flock(2)
        33 Setlkw { fh: u64, owner: u64, start: u64, end: u64, kind: u32, pid: u32,
                    lk_flags: u32, padding: Pad },
        /// access(2), when the kernel does not check permissions itself
        34 Access { mask: u32, padding: Pad },
        /// creates and opens a regular file
        35 Create { flags: u32, mode: u32, umask: u32, open_flags: u32, name: Text },
        /// a signal came for the process that waits for `unique`
        36 Interrupt { unique: u64 },
        /// the file system is gone
        38 Destroy {},
        /// ioctl(2): Covey has none
        39 Ioctl { rest: Rest },
        /// many Forgets
        42 BatchForget { rest: Rest },
        /// fallocate(2)
        43 Fallocate { fh: u64, offset: u64, length: u64, mode: u32, padding: Pad },
        /// entries with their attributes
        44 Readdirplus { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64,
                         flags: u32, padding: Pad },
        /// renameat2(2)
        45 Rename2 { newdir: u64, flags: u32, padding: Pad, name: Text, newname: Text },
        /// SEEK_DATA and SEEK_HOLE
        46 Lseek { fh: u64, offset: u64, whence: u32, padding: Pad },
        /// copy_file_range(2) between two open files
        47 CopyFileRange { fh: u64, offset: u64, nodeid_out: u64, fh_out: u64, offset_out: u64,
                           length: u64, flags: u64 },
        /// open(2) with O_TMPFILE; the name means nothing
        51 Tmpfile { flags: u32, mode: u32, umask: u32, open_flags: u32, name: Text },
        /// statx(2) that asks for the time of birth
        52 Statx { getattr_flags: u32, reserved: Pad, fh: u64, sx_flags: u32, sx_mask: u32 },
    }
}

/// Takes a request apart. The payload of a WRITE shares `message`. The header is there even when
/// the body is wrong or unknown, so that the request can be refused by its `unique`.
pub fn parse(message: Bytes) -> Result<(Header, Result<Request, Blame>), Blame> {
    let length = message.len();
    let mut reader = Reader::new(message);
    let header = <Header as Field>::get((), &mut reader)?;
    if header.len as usize != length {
        return Err(Blame::Malformed(format!("header says {} bytes, got {length}", header.len)));
    }
    let body = body(&header, reader);
    Ok((header, body))
}

fn body(header: &Header, mut reader: Reader) -> Result<Request, Blame> {
    let unknown = |_| Blame::Unsupported(format!("opcode {}", header.opcode));
    let number = u8::try_from(header.opcode).map_err(unknown)?;
    let request = Request::take_body(number, (), &mut reader)?;
    reader.finish()?;
    Ok(request)
}

/// Four bytes that mean nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pad;

impl Field for Pad {
    fn size(&self, _: ()) -> usize {
        4
    }
    fn put(&self, _: (), out: &mut Vec<u8>) {
        out.extend_from_slice(&[0; 4]);
    }
    fn get(_: (), from: &mut Reader) -> Result<Self, Blame> {
        from.u32().map(|_| Pad)
    }
}

/// A string that ends with NUL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(pub Name);

impl Field for Text {
    fn size(&self, _: ()) -> usize {
        self.0.len() + 1
    }
    fn put(&self, _: (), out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.as_bytes());
        out.push(0);
    }
    fn get(_: (), from: &mut Reader) -> Result<Self, Blame> {
        let mut text = from.bytes(from.remaining())?;
        let end = text.iter().position(|&byte| byte == 0);
        let end = end.ok_or_else(|| Blame::Malformed("a string without its NUL".into()))?;
        *from = Reader::new(text.split_off(end + 1));
        text.truncate(end);
        Ok(Text(text.into()))
    }
}

/// Everything up to the end of the message, shared with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest(pub Bytes);

impl Field for Rest {
    fn size(&self, _: ()) -> usize {
        self.0.len()
    }
    fn put(&self, _: (), out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn get(_: (), from: &mut Reader) -> Result<Self, Blame> {
        from.bytes(from.remaining()).map(Rest)
    }
}
