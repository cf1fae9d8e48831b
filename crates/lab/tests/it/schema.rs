//! Checks the JSON schemas against the files that the lab writes.
//!
//! The checker knows the few keywords that these schemas use and panics on any other, so it checks every rule.

use std::fs;
use std::path::Path;

use quictun_lab::{Cell, Findings, Run, SCHEMA};
use serde_json::{Map, Value, json};

fn results() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results")
}

fn schema(name: &str) -> Value {
    let path = results().join(format!("{name}.schema.json"));
    serde_json::from_str(&fs::read_to_string(path).expect("a schema")).expect("JSON")
}

/// Returns the committed runs as JSON values.
fn runs() -> Vec<Value> {
    let dirs = fs::read_dir(results()).expect("docs/results");
    let files = dirs.map(|entry| entry.expect("an entry").path().join("run.json"));
    let texts = files.filter_map(|file| fs::read_to_string(file).ok());
    texts
        .map(|text| serde_json::from_str(&text).expect("JSON"))
        .collect()
}

/// Checks a value against a schema, and adds the place and the reason of each violation to `faults`.
fn check(whole: &Value, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
    let object = schema.as_object().expect("a schema is an object");
    for (keyword, says) in object {
        let holds = match &**keyword {
            "$schema" | "title" | "description" | "$defs" => true,
            "$ref" => {
                let name = says.as_str().and_then(|text| text.strip_prefix("#/$defs/"));
                let referred = &whole["$defs"][name.expect("a reference to $defs")];
                check(whole, referred, value, at, faults);
                true
            }
            "anyOf" => says.as_array().expect("a list").iter().any(|one| {
                let mut inner = Vec::new();
                check(whole, one, value, at, &mut inner);
                inner.is_empty()
            }),
            "const" => value == says,
            "type" => match says {
                Value::Array(types) => types.iter().any(|one| is_of(value, one)),
                one => is_of(value, one),
            },
            "minimum" => value
                .as_f64()
                .is_none_or(|number| Some(number) >= says.as_f64()),
            "maximum" => value
                .as_f64()
                .is_none_or(|number| Some(number) <= says.as_f64()),
            "minItems" => length(value) >= says.as_u64(),
            "maxItems" => length(value) <= says.as_u64(),
            "items" | "prefixItems" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    let inner = if keyword == "items" {
                        says
                    } else {
                        &says[index]
                    };
                    check(whole, inner, item, &format!("{at}[{index}]"), faults);
                }
                true
            }
            "properties" | "additionalProperties" => {
                check_members(whole, object, value, keyword == "properties", at, faults);
                true
            }
            "required" => {
                let mut names = says.as_array().expect("a list").iter();
                names.all(|name| value.get(name.as_str().expect("a name")).is_some())
            }
            unknown => panic!("{at}: unknown schema keyword {unknown:?}"),
        };
        if !holds {
            faults.push(format!("{at}: not {keyword} {says}: {value}"));
        }
    }
}

fn check_members(
    whole: &Value,
    schema: &Map<String, Value>,
    value: &Value,
    named: bool,
    at: &str,
    faults: &mut Vec<String>,
) {
    let known = schema.get("properties").and_then(Value::as_object);
    for (name, member) in value.as_object().into_iter().flatten() {
        let at = format!("{at}.{name}");
        match (known.and_then(|known| known.get(name)), named) {
            (Some(inner), true) => check(whole, inner, member, &at, faults),
            (None, false) => match &schema["additionalProperties"] {
                Value::Bool(true) => {}
                Value::Bool(false) => faults.push(format!("{at}: there is no such key")),
                inner => check(whole, inner, member, &at, faults),
            },
            (Some(_), false) | (None, true) => {}
        }
    }
}

fn is_of(value: &Value, kind: &Value) -> bool {
    match kind.as_str().expect("the name of a type") {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        unknown => panic!("unknown type {unknown:?}"),
    }
}

fn length(value: &Value) -> Option<u64> {
    value.as_array().map(|items| items.len() as u64)
}

fn faults(schema: &Value, value: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    check(schema, schema, value, "$", &mut faults);
    faults
}

#[test]
fn written_files_match_their_schemas() {
    let (raw, found) = (schema("run"), schema("summary"));
    assert_eq!(raw["properties"]["schema"]["const"], SCHEMA);
    let runs = runs();
    assert!(!runs.is_empty(), "docs/results holds no run");
    for value in runs {
        assert_eq!(faults(&raw, &value), [""; 0], "{}", value["command"]);
        let (mut run, scenario) = Run::from_json(&value.to_string()).expect("a run");
        // Add what no committed run has: a failed cell without a link, and an early end.
        run.ended_early = Some("interrupted".to_owned());
        run.cells.push(Cell {
            block: 1,
            flags: vec!["nothing arrived".to_owned()],
            ..Cell::default()
        });
        let written = run.to_json().expect("JSON");
        let written = serde_json::from_str(&written).expect("JSON");
        assert_eq!(faults(&raw, &written), [""; 0]);
        let summary = Findings::new(&run, &scenario).to_json().expect("JSON");
        let summary = serde_json::from_str(&summary).expect("JSON");
        assert_eq!(faults(&found, &summary), [""; 0], "{}", scenario.name);
    }
}

#[test]
fn a_file_that_breaks_its_schema_is_detected() {
    let (raw, runs) = (schema("run"), runs());
    // Some runs have no link.
    let has_link = |run: &&Value| run.pointer("/cells/0/link/up/loss").is_some();
    let good = runs.iter().find(has_link).expect("results of a link");
    for (pointer, value, says) in [
        ("/schema", json!("lab/2"), "$.schema: not const"),
        ("/seconds", json!("long"), "$.seconds: not type"),
        ("/asked/reps", json!(0), "$.asked.reps: not minimum"),
        ("/asked/reps", json!(1.5), "$.asked.reps: not type"),
        ("/cells/0/idle", json!(1.5), "$.cells[0].idle: not maximum"),
        (
            "/cells/0/link/up/loss",
            json!(null),
            "$.cells[0].link: not anyOf",
        ),
        (
            "/cells/0/series",
            json!([[1.0]]),
            "$.cells[0].series[0]: not minItems",
        ),
        (
            "/cells/0/metrics",
            json!({"speed": "high"}),
            "$.cells[0].metrics.speed: not type",
        ),
        ("/cells/0", json!({}), "$.cells[0]: not required"),
        (
            "/asked",
            json!({"only": [], "reps": 1, "quick": true, "seed": 1, "slow": true}),
            "$.asked.slow: there is no such key",
        ),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).expect(pointer) = value;
        let faults = faults(&raw, &bad);
        assert!(
            faults.iter().any(|fault| fault.starts_with(says)),
            "{says}: {faults:?}"
        );
    }
}
