//! Prepares text for logs: escapes it, bounds it, and removes credentials.

use std::borrow::Cow;
use std::fmt::{self, Display, Write as _};

/// Longest text of a peer in one value, bytes. A host name has at most 253.
const MAX_FOREIGN: usize = 256;

/// Wraps text that a peer wrote or could shape. `Display` shows the first 256 bytes, and the length of longer text.
#[derive(Debug)]
pub struct Untrusted<T>(pub T);

impl<T: Display> Display for Untrusted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cut = TruncatingBuffer::default();
        write!(cut, "{}", self.0)?;
        f.write_str(&cut.text)?;
        if cut.bytes > cut.text.len() {
            write!(f, "… ({} bytes)", cut.bytes)?;
        }
        Ok(())
    }
}

/// Keeps the beginning of the written text and counts the bytes of all of it.
#[derive(Default)]
struct TruncatingBuffer {
    text: String,
    bytes: usize,
}

impl fmt::Write for TruncatingBuffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.bytes == self.text.len() {
            let room = MAX_FOREIGN - self.text.len();
            self.text.push_str(&text[..text.floor_char_boundary(room)]);
        }
        self.bytes += text.len();
        Ok(())
    }
}

/// Returns a text that others wrote or could shape, for a terminal: characters that could end a line, move the cursor or
/// change how other text is displayed are escaped, as in logs.
pub fn printable(text: &str) -> String {
    let mut out = String::new();
    write_message(&mut out, text).expect("invariant: writing to a String never fails");
    out
}

/// Returns a document in JSON for a terminal. In its strings, the characters that [`printable`] escapes become `\u202e`,
/// which means the same to a parser.
pub fn printable_json(json: &str) -> String {
    let mut out = String::new();
    for c in json.chars() {
        // A document has line feeds between its values. In its strings they are escaped already.
        if is_escaped(c) && c != '\n' {
            write_utf16(&mut out, c).expect("invariant: writing to a String never fails");
        } else {
            out.push(c);
        }
    }
    out
}

/// Returns true if logs escape the character, because it could end a line, move the cursor, or change how other
/// characters are displayed.
///
/// These are control characters (C0, DEL, C1), line and paragraph separators, bidirectional controls, characters
/// without a width or a shape of their own, and tags.
pub(super) fn is_escaped(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Writes a message, and escapes characters as in Rust: `\u{202e}`.
pub(super) fn write_message(out: &mut String, message: &str) -> fmt::Result {
    let mut rest = message;
    while let Some(c) = write_plain(out, &mut rest) {
        if is_escaped(c) {
            write!(out, "{}", c.escape_default())?;
        } else {
            out.push(c);
        }
    }
    Ok(())
}

/// Writes the leading run of printable ASCII without quotes and backslashes, which needs no escapes. Removes the run
/// and the character after it from `rest`, and returns that character. Nearly all log text is such a run, and is copied
/// at once.
fn write_plain(out: &mut String, rest: &mut &str) -> Option<char> {
    let plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    let end = rest.bytes().position(|byte| !plain(byte));
    let (run, behind) = rest.split_at(end.unwrap_or(rest.len()));
    out.push_str(run);
    let mut chars = behind.chars();
    let next = chars.next();
    *rest = chars.as_str();
    next
}

/// Writes a JSON string. Characters are escaped as `\u202e`, and those beyond the basic plane as two surrogates.
pub(super) fn write_json_string(out: &mut String, text: &str) -> fmt::Result {
    out.push('"');
    let mut rest = text;
    while let Some(c) = write_plain(out, &mut rest) {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_escaped(c) => write_utf16(out, c)?,
            c => out.push(c),
        }
    }
    out.push('"');
    Ok(())
}

/// Writes a character as JSON escapes it.
fn write_utf16(out: &mut String, c: char) -> fmt::Result {
    for half in c.encode_utf16(&mut [0; 2]) {
        write!(out, "\\u{half:04x}")?;
    }
    Ok(())
}

/// Removes user names and passwords from URLs in a text: `https://user:secret@host/` becomes `https://host/`.
pub fn without_credentials(text: &str) -> Cow<'_, str> {
    // Searching for one byte is far faster than searching for three.
    if !text.contains('@') {
        return Cow::Borrowed(text);
    }
    let (mut shown, mut rest, mut changed) = (String::new(), text, false);
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        // RFC 3986 section 3.2 ends the authority. In a sentence, whitespace, quotes and angle brackets end a URL too.
        let ends =
            |c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '<' | '>' | '`');
        let end = after.find(ends).unwrap_or(after.len());
        let authority = &after[..end];
        let host = authority.rfind('@').map_or(0, |at| at + 1);
        changed |= host > 0;
        shown.push_str(before);
        shown.push_str(&authority[host..]);
        rest = &after[end..];
    }
    if !changed {
        return Cow::Borrowed(text);
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

/// Returns a URL for logs and errors, without credentials and without its query, because the query often contains keys.
pub fn shown_url(url: &str) -> String {
    // In a malformed URL the password may contain a slash, so everything before the last '@' could be part of it.
    let bare = match url.split_once("://") {
        Some((scheme, rest)) => {
            let path = rest.find(['?', '#']).unwrap_or(rest.len());
            let host = rest[..path].rfind('@').map_or(0, |at| at + 1);
            format!("{scheme}://{}", &rest[host..])
        }
        None => url.rsplit('@').next().unwrap_or(url).to_owned(),
    };
    match bare.split_once(['?', '#']) {
        Some((place, _)) => format!("{place}?…"),
        None => bare,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_text_is_shown_up_to_its_limit() {
        let limit = "x".repeat(MAX_FOREIGN);
        assert_eq!(Untrusted(&limit).to_string(), limit);
        let over = format!("{limit}y");
        assert_eq!(
            Untrusted(&over).to_string(),
            format!("{limit}… (257 bytes)")
        );
        let wide = "ä".repeat(100_000);
        let shown = Untrusted(&wide).to_string();
        assert_eq!(shown, format!("{}… (200000 bytes)", "ä".repeat(128)));
        // The text arrives in parts: after a cut, nothing more is shown.
        let parts = Untrusted(format_args!("{}{}", "x".repeat(255), "äb"));
        assert_eq!(
            parts.to_string(),
            format!("{}… (258 bytes)", "x".repeat(255))
        );
    }

    #[test]
    fn characters_that_could_forge_a_line_are_escaped() {
        let hostile = [
            '\0',
            '\n',
            '\r',
            '\t',
            '\u{1b}',
            '\u{7f}',
            '\u{80}',
            '\u{85}',
            '\u{9b}',
            '\u{9f}',
            '\u{61c}',
            '\u{200b}',
            '\u{200e}',
            '\u{200f}',
            '\u{2028}',
            '\u{2029}',
            '\u{202a}',
            '\u{202e}',
            '\u{2066}',
            '\u{2069}',
            '\u{feff}',
            '\u{e0041}',
        ];
        for c in hostile {
            let text = format!("a{c}b");
            let (mut message, mut json) = (String::new(), String::new());
            write_message(&mut message, &text).expect("written");
            write_json_string(&mut json, &text).expect("written");
            assert_eq!(printable(&text), message);
            assert!(
                !message.contains(c) && !json.contains(c),
                "{c:?}: {message} {json}"
            );
            let read: String = serde_json::from_str(&json).expect("JSON");
            assert_eq!(read, text);
        }
        let harmless = "Grüße, 日本語, العربية, emoji 🦀, \u{a0}, ~ and \u{d7ff}";
        let (mut message, mut json) = (String::new(), String::new());
        write_message(&mut message, harmless).expect("written");
        write_json_string(&mut json, harmless).expect("written");
        assert_eq!(
            (message.as_str(), json),
            (harmless, format!("\"{harmless}\""))
        );
    }

    #[test]
    fn urls_lose_their_credentials_anywhere_in_a_text() {
        for (text, shown) in [
            ("http://user:pass@host/x", "http://host/x"),
            ("http://user@host:80", "http://host:80"),
            ("https://u:p@ss@[::1]:8/?a=b@c", "https://[::1]:8/?a=b@c"),
            (
                "no token from \"http://u:p@h/\": refused",
                "no token from \"http://h/\": refused",
            ),
            ("a://b:c@d and e://f:g@h", "a://d and e://h"),
            ("http://host/path@2x?q=a@b", "http://host/path@2x?q=a@b"),
            ("mail to a@b.example", "mail to a@b.example"),
            ("://@", "://"),
            ("", ""),
        ] {
            assert_eq!(without_credentials(text), shown);
        }
    }

    #[test]
    fn a_url_is_shown_without_credentials_and_query() {
        for (url, shown) in [
            ("http://127.0.0.1:8500/token", "http://127.0.0.1:8500/token"),
            ("https://u:p@h/t?key=secret&addr=x", "https://h/t?…"),
            ("http://u:p/a@h/t#f", "http://h/t?…"),
            ("user:pass@host", "host"),
        ] {
            assert_eq!(shown_url(url), shown);
        }
    }
}
