//! Descriptors from one process to another, beside bytes of a Unix socket.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Descriptors that one call passes at most.
pub const FDS_MAX: usize = 72;

/// Sends bytes, as many as there is room for, and at most [`FDS_MAX`] descriptors beside the first of them.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    // The space is rounded up, and one more might fit.
    let is_too_many = fds.len() > FDS_MAX;
    let mut passes = |fds| control.push(SendAncillaryMessage::ScmRights(fds));
    if is_too_many || !fds.is_empty() && !passes(fds) {
        let what = format!("{} descriptors at once, limit is {FDS_MAX}", fds.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// Receives bytes, as many as there are, and the descriptors that came beside them. 0 bytes: the other end is closed.
pub fn receive(socket: impl AsFd, into: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, flags)?;
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok((received.bytes, fds.flatten().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn descriptors_arrive_beside_the_bytes_they_were_sent_with() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"inside").unwrap();
        let many: Vec<_> = (0..FDS_MAX).map(|_| file.as_fd()).collect();
        assert_eq!(send(&ours, b"with", &many).unwrap(), 4);
        assert_eq!(send(&ours, b"without", &[]).unwrap(), 7);
        let mut bytes = [0; 4];
        let (length, fds) = receive(&theirs, &mut bytes).unwrap();
        assert_eq!((length, &bytes[..], fds.len()), (4, &b"with"[..], FDS_MAX));
        let mut passed = File::from(fds.into_iter().next().unwrap());
        passed.rewind().unwrap();
        let mut text = String::new();
        passed.read_to_string(&mut text).unwrap();
        assert_eq!(text, "inside");
        let (length, fds) = receive(&theirs, &mut [0; 9]).unwrap();
        assert_eq!((length, fds.len()), (7, 0));
        drop(ours);
        assert_eq!(receive(&theirs, &mut bytes).unwrap().0, 0);
    }

    #[test]
    fn too_many_descriptors_are_refused() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let many: Vec<_> = (0..=FDS_MAX).map(|_| ours.as_fd()).collect();
        assert_eq!(send(&ours, b"x", &many).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
