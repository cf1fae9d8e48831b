//! The tables of fields: the static one (RFC 7541 appendix A), and the dynamic one (section 2.3.2).

use std::collections::VecDeque;

/// Size that a field adds to its name and its value (section 4.1), bytes.
pub(crate) const FIELD_OVERHEAD: usize = 32;

/// The dynamic table of a peer.
#[derive(Debug)]
pub(super) struct DynamicTable {
    /// The newest entry is first.
    entries: VecDeque<Entry>,
    size: usize,
    max: usize,
}

#[derive(Debug)]
struct Entry {
    /// The name, and the value behind it.
    bytes: Box<[u8]>,
    name_len: usize,
}

impl DynamicTable {
    pub(super) fn new(max: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            size: 0,
            max,
        }
    }

    /// Returns the memory of the entries, bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn set_max(&mut self, max: usize) {
        self.max = max;
        self.evict(0);
    }

    /// Adds a field. One that is larger than the table only empties it (section 4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + FIELD_OVERHEAD;
        self.evict(size);
        if size <= self.max {
            self.size += size;
            let entry = Entry {
                bytes: [name, value].concat().into(),
                name_len: name.len(),
            };
            self.entries.push_front(entry);
        }
    }

    fn evict(&mut self, room: usize) {
        while self.size + room > self.max
            && let Some(Entry { bytes, .. }) = self.entries.pop_back()
        {
            self.size -= bytes.len() + FIELD_OVERHEAD;
        }
    }

    /// Returns the field of an index of both tables, which begins with 1 (section 2.3.3).
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let index = index.checked_sub(1)?;
        if let Some(&field) = STATIC.get(index) {
            return Some(field);
        }
        let Entry { bytes, name_len } = self.entries.get(index - STATIC.len())?;
        Some(bytes.split_at(*name_len))
    }
}

/// Returns the index of the first field of the static table with this name.
pub(super) fn static_name(name: &[u8]) -> Option<usize> {
    let mut fields = STATIC.iter();
    fields
        .position(|(known, _)| *known == name)
        .map(|at| at + 1)
}

/// Returns the index of this field in the static table.
pub(super) fn static_field(name: &[u8], value: &[u8]) -> Option<usize> {
    let mut fields = STATIC.iter();
    fields
        .position(|field| *field == (name, value))
        .map(|at| at + 1)
}

const STATIC: &[(&[u8], &[u8])] = &[
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];
