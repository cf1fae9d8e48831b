//! Prepares Rust source for the rules: blanks comments, literals and test code, and keeps the line numbers.

/// A source file in the forms that the rules need.
#[derive(Debug)]
pub(crate) struct Source {
    /// The path from the root of the repository.
    pub(crate) path: String,
    /// The unchanged text of the file.
    pub(crate) raw: String,
    /// The text with comments and literals replaced by spaces.
    pub(crate) code: String,
    /// The text with the items that only tests compile replaced by spaces as well.
    pub(crate) product: String,
    /// The names of the modules that are declared for tests only.
    pub(crate) test_modules: Vec<String>,
}

impl Source {
    pub(crate) fn new(path: &str, raw: String) -> Self {
        let code = blank_literals(&raw);
        let (product, test_modules) = blank_tests(&raw, &code);
        Self {
            path: path.to_owned(),
            raw,
            code,
            product,
            test_modules,
        }
    }

    /// Returns the crate's directory below `crates/`, or else the first directory of the path.
    pub(crate) fn package(&self) -> &str {
        let path = self.path.strip_prefix("crates/").unwrap_or(&self.path);
        path.split('/').next().unwrap_or_default()
    }

    /// Returns whether the file is a test: it is below a directory `tests`, or `test_paths` contains it.
    pub(crate) fn is_test(&self, test_paths: &[String]) -> bool {
        let path = self.path.trim_end_matches(".rs").trim_end_matches("/mod");
        let starts_a_part = |rest: &str| rest.is_empty() || rest.starts_with('/');
        let below = |test: &String| path.strip_prefix(test.as_str()).is_some_and(starts_a_part);
        self.path.contains("/tests/") || test_paths.iter().any(below)
    }

    /// Returns whether the file is an example of a library's use.
    pub(crate) fn is_example(&self) -> bool {
        self.path.contains("/examples/")
    }

    /// Returns the paths of the modules in `test_modules`, without the ending of a file.
    pub(crate) fn test_paths(&self) -> impl Iterator<Item = String> {
        let stem = self.path.trim_end_matches(".rs");
        let dir = match stem.rsplit_once('/') {
            Some((dir, "lib" | "main" | "mod")) => dir.to_owned(),
            _ => stem.to_owned(),
        };
        self.test_modules
            .iter()
            .map(move |name| format!("{dir}/{name}"))
    }
}

pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns the offsets at which `needle` occurs in `text` and is not part of a longer word.
pub(crate) fn words<'a>(text: &'a str, needle: &'a str) -> impl Iterator<Item = usize> + 'a {
    let word_at = |at: usize| text.as_bytes().get(at).copied().is_some_and(is_word);
    let found = text.match_indices(needle).map(|(at, _)| at);
    found.filter(move |&at| {
        let longer_left = at > 0 && word_at(at - 1) && word_at(at);
        let end = at + needle.len();
        let longer_right = word_at(end - 1) && word_at(end);
        !longer_left && !longer_right
    })
}

/// Returns the number of the line that contains byte `at`, counted from 1.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Returns the name, the first line and the number of lines of each function.
pub(crate) fn functions(code: &str) -> Vec<(&str, usize, usize)> {
    let mut found = Vec::new();
    for at in words(code, "fn ") {
        let name = code[at + 3..]
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .next()
            .unwrap_or_default();
        let (end, has_body) = item_end(code.as_bytes(), at);
        if has_body && !name.is_empty() {
            let first = line_of(code, at);
            found.push((name, first, line_of(code, end - 1) - first + 1));
        }
    }
    found
}

/// Returns the end of the item that starts at `at`, and whether the item has a body in braces.
fn item_end(code: &[u8], at: usize) -> (usize, bool) {
    let (mut nested, mut braces) = (0_usize, 0_usize);
    for (offset, byte) in code[at..].iter().enumerate() {
        match byte {
            b'(' | b'[' => nested += 1,
            b')' | b']' => nested = nested.saturating_sub(1),
            b'{' => braces += 1,
            b'}' if braces <= 1 => return (at + offset + 1, braces == 1),
            b'}' => braces -= 1,
            b';' if nested == 0 && braces == 0 => return (at + offset + 1, false),
            _ => {}
        }
    }
    (code.len(), false)
}

fn blank(text: &mut [u8]) {
    for byte in text.iter_mut().filter(|b| **b != b'\n') {
        *byte = b' ';
    }
}

fn blank_literals(raw: &str) -> String {
    let mut text = raw.as_bytes().to_vec();
    let mut at = 0;
    while at < text.len() {
        let end = literal_end(raw.as_bytes(), at).min(text.len());
        blank(&mut text[at..end]);
        at = end.max(at + 1);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the end of the comment or literal that starts at `at`, or `at` if none starts there.
fn literal_end(raw: &[u8], at: usize) -> usize {
    let rest = &raw[at..];
    let find = |from: usize, what: &[u8]| {
        let found = rest[from..]
            .windows(what.len())
            .position(|window| window == what);
        found.map_or(raw.len(), |position| at + from + position + what.len())
    };
    match rest {
        [b'/', b'/', ..] => find(2, b"\n"),
        [b'/', b'*', ..] => find(2, b"*/"),
        [b'"', ..] => quoted_end(raw, at, b'"'),
        [b'\'', b'\\', ..] => quoted_end(raw, at, b'\''),
        [b'\'', first, ..] => {
            let length = match first {
                0..=0x7f => 1,
                0..=0xdf => 2,
                0..=0xef => 3,
                _ => 4,
            };
            // Without the closing quote, this is a lifetime.
            if rest.get(1 + length) == Some(&b'\'') {
                at + length + 2
            } else {
                at
            }
        }
        [b'r', ..] if at == 0 || !is_word(raw[at - 1]) || raw[at - 1] == b'b' => {
            let hashes = rest[1..].iter().take_while(|b| **b == b'#').count();
            if rest.get(1 + hashes) != Some(&b'"') {
                return at;
            }
            let mut close = vec![b'"'];
            close.resize(1 + hashes, b'#');
            find(2 + hashes, &close)
        }
        _ => at,
    }
}

fn quoted_end(raw: &[u8], at: usize, quote: u8) -> usize {
    let mut end = at + 1;
    while end < raw.len() && raw[end] != quote {
        end += if raw[end] == b'\\' { 2 } else { 1 };
    }
    end + 1
}

/// Features that only tests and fuzz targets enable.
const TEST_FEATURES: [&str; 2] = ["feature = \"check\"", "feature = \"evidence\""];

/// Blanks every `#[cfg(test)]` item, and every module behind a feature of tests. Returns the names of the modules among
/// these items. `code` is `raw` without comments and literals.
fn blank_tests(raw: &str, code: &str) -> (String, Vec<String>) {
    let mut text = code.as_bytes().to_vec();
    let mut modules = Vec::new();
    for (marker, modules_only) in [
        ("#[cfg(test)]", false),
        ("#[cfg(all(test", false),
        ("#[cfg(any(test", true),
        ("#[cfg(feature", true),
    ] {
        for (at, _) in code.match_indices(marker) {
            let (end, _) = item_end(code.as_bytes(), at);
            let mut item = code[at..end]
                .split_whitespace()
                .skip_while(|word| *word != "mod")
                .skip(1);
            let module = item.next().and_then(|name| name.strip_suffix(';'));
            let behind_feature = || TEST_FEATURES.iter().any(|it| raw[at..end].contains(it));
            if modules_only && !(module.is_some() && behind_feature()) {
                continue;
            }
            modules.extend(module.map(str::to_owned));
            blank(&mut text[at..end]);
        }
    }
    (String::from_utf8_lossy(&text).into_owned(), modules)
}
