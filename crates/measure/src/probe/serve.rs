//! The end that answers.

use super::{
    APART, BYTES_MAX, ECHO, HEADER_BYTES, HELD_TO_ME, HELD_TO_YOU, HELLO, PATIENCE,
    PIECE_BYTES_MAX, TELL, TO_ME, TO_YOU, apart, end, held, read_header, stream,
};
use crate::environment::Watch;
use crate::error::{Cannot, Result};
use covey_io::os::tcp;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Answers everybody, or one peer only.
pub fn serve(listener: &TcpListener, once: bool) -> Result<()> {
    loop {
        let (stream, peer) = listener.accept().cannot(|| "accept a connection")?;
        let answer = move || match answer(&stream) {
            Ok(()) => {}
            Err(error) => tracing::info!("measurement by {peer} ended: {error}"),
        };
        if once {
            answer();
            return Ok(());
        } else {
            std::thread::spawn(answer)
        };
    }
}

fn answer(mut stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    // One who says nothing must not hold a thread for ever.
    stream.set_read_timeout(Some(60 * PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut hello = [0; 8];
    stream.read_exact(&mut hello)?;
    stream.write_all(&HELLO)?;
    if hello != HELLO {
        return Err(std::io::Error::other("the peer is no covey of this version"));
    }
    let watch = Watch::begin();
    let mut block = Vec::new();
    loop {
        let mut header = [0; HEADER_BYTES];
        match stream.read_exact(&mut header) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        let (bytes, rounds, what) = read_header(header);
        match what {
            ECHO if (1..=BYTES_MAX).contains(&bytes) => {
                block.resize(bytes as usize, 0);
                for _ in 0..rounds {
                    stream.read_exact(&mut block)?;
                    stream.write_all(&block)?;
                }
            }
            APART if (1..=BYTES_MAX).contains(&bytes) => {
                block.resize(bytes as usize, 0);
                apart::echo(stream, &mut block, rounds)?;
            }
            HELD_TO_YOU if (1..=PIECE_BYTES_MAX).contains(&bytes) => {
                held::take(stream, bytes, rounds)?;
            }
            HELD_TO_ME if (1..=PIECE_BYTES_MAX).contains(&bytes) => {
                held::give(stream, bytes, rounds)?;
            }
            TELL => {
                end::answer(stream, &watch)?;
                continue;
            }
            TO_YOU => stream::take(stream, bytes)?,
            TO_ME => stream::give(stream, bytes)?,
            _ => {
                return Err(std::io::Error::other(format!(
                    "a block of {bytes} bytes was asked for"
                )));
            }
        }
        stream.write_all(&tcp::info(stream)?.retransmits.to_le_bytes())?;
    }
}
