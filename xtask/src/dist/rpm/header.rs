//! Writes a header of the rpm format: values by tag, in one region that is signed as a whole.

use anyhow::{Result, ensure};

/// The value of a tag, in one of the rpm format's types.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Int16(Vec<u16>),
    Int32(Vec<u32>),
    Text(String),
    Texts(Vec<String>),
    /// A translatable text that has only its untranslated version.
    Translated(String),
}

const MAGIC: [u8; 8] = [0x8e, 0xad, 0xe8, 1, 0, 0, 0, 0];
const BINARY: u32 = 7;
/// The size of an index entry in bytes. The trailer at the end of a region has the same form.
const ENTRY: u32 = 16;

/// Builds a header. `region` is the tag of the region; `values` must be sorted by tag, without duplicates.
pub(crate) fn header(region: u32, values: &[(u32, Value)]) -> Result<Vec<u8>> {
    let (mut index, mut store) = (Vec::new(), Vec::new());
    for (at, (tag, value)) in values.iter().enumerate() {
        let is_sorted = at == 0 || values[at - 1].0 < *tag;
        ensure!(is_sorted, "tag {tag} of an rpm header is out of order");
        let (kind, align, count, bytes) = value.encode();
        store.resize(store.len().next_multiple_of(align), 0);
        index.extend(entry(*tag, kind, size(store.len())?, count));
        store.extend(bytes);
    }
    let entries = size(values.len())? + 1;
    let end = size(store.len())?;
    // The region begins with its own entry and ends with this trailer, which holds the offset back to that entry.
    store.extend(entry(
        region,
        BINARY,
        (entries * ENTRY).wrapping_neg(),
        ENTRY,
    ));
    let mut header = MAGIC.to_vec();
    header.extend(entries.to_be_bytes());
    header.extend(size(store.len())?.to_be_bytes());
    header.extend(entry(region, BINARY, end, ENTRY));
    header.extend(index);
    header.extend(store);
    Ok(header)
}

fn entry(tag: u32, kind: u32, offset: u32, count: u32) -> Vec<u8> {
    [tag, kind, offset, count].map(u32::to_be_bytes).concat()
}

fn size(length: usize) -> Result<u32> {
    Ok(u32::try_from(length)?)
}

impl Value {
    /// Returns the type number, the alignment, the count and the bytes of the value.
    fn encode(&self) -> (u32, usize, u32, Vec<u8>) {
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let text = |text: &String| [text.as_bytes(), &[0]].concat();
        match self {
            Self::Int16(all) => {
                let bytes = all.iter().flat_map(|value| value.to_be_bytes());
                (3, 2, count(all.len()), bytes.collect())
            }
            Self::Int32(all) => {
                let bytes = all.iter().flat_map(|value| value.to_be_bytes());
                (4, 4, count(all.len()), bytes.collect())
            }
            Self::Text(value) => (6, 1, 1, text(value)),
            Self::Texts(all) => (8, 1, count(all.len()), all.iter().flat_map(text).collect()),
            Self::Translated(value) => (9, 1, 1, text(value)),
        }
    }
}
