//! Rule: every test that the security model names exists in the crate that it names.

use crate::source::Source;
use crate::tidy::{Finding, Tree, finding};

const DOCUMENT: &str = "docs/SECURITY-MODEL.md";

/// Finds tests that do not exist.
///
/// After the name of a crate and a colon, each text in backquotes is a test: `module::name`, `name` alone, or a module
/// with all its tests (`module::`, `module::tests`).
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut all = Vec::new();
    for (index, line) in tree.text(DOCUMENT).lines().enumerate() {
        let mut package = "";
        for (part, text) in line.split('`').enumerate() {
            if part % 2 == 0 {
                if text != ", " {
                    package = package_before(text);
                }
            } else if !package.is_empty() && !exists(tree, package, text) {
                let text = format!("the crate {package} has no test `{text}`");
                all.push(finding("cited-test", DOCUMENT, index + 1, text));
            }
        }
    }
    all
}

/// Returns the last word of `text` if a colon follows it, and an empty string otherwise.
fn package_before(text: &str) -> &str {
    let named = text.strip_suffix(": ");
    named
        .and_then(|text| text.rsplit(' ').next())
        .unwrap_or_default()
}

fn exists(tree: &Tree, package: &str, test: &str) -> bool {
    let path = test.trim_end_matches('*').trim_end_matches("::");
    let (module, name) = path.rsplit_once("::").unwrap_or(("", path));
    let function = format!("fn {name}(");
    let mut sources = tree.sources.iter();
    sources.any(|source| {
        let has_function = is_in(source, module) && source.raw.contains(&function);
        source.package() == package && (has_function || is_in(source, path))
    })
}

/// Returns whether the file is, or belongs to, the module. Every file belongs to the module without a name.
fn is_in(source: &Source, module: &str) -> bool {
    let module = module.strip_suffix("::tests").unwrap_or(module);
    let stem = source.path.trim_end_matches(".rs");
    module.is_empty() || format!("{stem}/").contains(&format!("/{}/", module.replace("::", "/")))
}
