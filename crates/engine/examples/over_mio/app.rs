//! An application in memory.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};

use quictun_engine::Socket;

pub(crate) struct App {
    /// Bytes that the engine has not read.
    left: VecDeque<u8>,
    /// True if the FIN follows them.
    finished: bool,
    echoes: bool,
}

impl App {
    /// Creates an application that sends a text and a FIN.
    pub(crate) fn sends(text: &[u8]) -> Self {
        Self {
            left: text.iter().copied().collect(),
            finished: true,
            echoes: false,
        }
    }

    /// Creates an application that sends what it receives.
    pub(crate) fn echoes() -> Self {
        Self {
            left: VecDeque::new(),
            finished: false,
            echoes: true,
        }
    }
}

impl Socket for App {
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        if self.left.is_empty() && !self.finished {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = self.left.len().min(into.capacity() - into.len());
        into.extend(self.left.drain(..count));
        Ok(count)
    }

    fn write(&mut self, chunks: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes = chunks.iter().flat_map(|chunk| chunk.iter().copied());
        if self.echoes {
            self.left.extend(bytes);
        }
        Ok(chunks.iter().map(|chunk| chunk.len()).sum())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.finished = true;
        Ok(())
    }

    fn abort(&mut self) {}

    fn close(&mut self) {}
}
