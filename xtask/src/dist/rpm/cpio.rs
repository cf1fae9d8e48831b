//! Writes the payload of an rpm: a `cpio` archive in the format `newc`.

use super::Node;

const END: &str = "TRAILER!!!";

/// Writes the archive of the nodes, in the given order.
pub(crate) fn archive(nodes: &[Node<'_>], date: u32) -> Vec<u8> {
    let mut archive = Vec::new();
    for (at, node) in (1..).zip(nodes) {
        let name = format!(".{}", node.path);
        add(
            &mut archive,
            at,
            node.mode.into(),
            date,
            &name,
            node.content,
        );
    }
    add(&mut archive, 0, 0, 0, END, &[]);
    archive
}

fn add(archive: &mut Vec<u8>, inode: u32, mode: u32, date: u32, name: &str, content: &[u8]) {
    let links = 1;
    let (size, name_size) = (content.len(), name.len() + 1);
    let fields = [inode, mode, 0, 0, links, date];
    archive.extend(b"070701");
    for field in fields {
        archive.extend(format!("{field:08x}").as_bytes());
    }
    let (device, checksum) = (0, 0);
    archive.extend(format!("{size:08x}").as_bytes());
    archive.extend(format!("{device:08x}").repeat(4).as_bytes());
    archive.extend(format!("{name_size:08x}{checksum:08x}").as_bytes());
    archive.extend(name.as_bytes());
    archive.push(0);
    pad(archive);
    archive.extend(content);
    pad(archive);
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}
