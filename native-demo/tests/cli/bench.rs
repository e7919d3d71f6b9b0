//! `deltanet bench`.

use serde_json::Value;

use super::ok;

#[test]
fn benchmarks_check_and_time() {
    let (stdout, _) = ok(&[
        "bench",
        "--device",
        "cpu",
        "--only",
        "operator",
        "--rule",
        "all",
        "--tokens",
        "70",
        "--batch",
        "2",
        "--heads",
        "2",
        "--value-heads",
        "4",
        "--key-dim",
        "32",
        "--value-dim",
        "48",
        "--runs",
        "2",
        "--json",
    ]);
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 20);
    for row in rows {
        assert!(row["wall"]["median"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["error"].as_f64().unwrap() < 1e-4, "{row}");
    }
}

/// The whole suite in small sizes. A result that is wrong fails the program.
#[test]
fn the_suite_has_every_row() {
    let words = ["bench", "--suite", "h200", "--quick", "--device", "gpu", "--runs", "1", "--seconds", "1"];
    let (stdout, _) = ok(&[&words[..], &["--json"]].concat());
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let named = |group: &str| {
        let rows = rows.iter().filter(|r| r["group"] == group);
        rows.map(|r| r["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let skipped: Vec<&str> = report["skipped"].as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect();
    assert_eq!(named("copy").len(), 2);
    // Three lengths and all other rules, twice; and two steps.
    let operators = named("operator");
    assert_eq!(operators.len(), 2 * (3 + 9) + 2, "{operators:?}");
    assert_eq!(operators.iter().filter(|n| n.ends_with(", f16")).count(), 3 + 9, "{operators:?}");
    assert_eq!(operators.iter().filter(|n| n.contains("step of")).count(), 2, "{operators:?}");
    let products = named("matmul");
    assert_eq!(products.len(), 3, "{products:?}");
    assert!(products[2].contains("in turn"), "{products:?}");
    // Decode of the demo model; prefill, decode and many sessions; prefill and decode.
    let models = named("model");
    assert_eq!(models.len(), 1 + 3 + 2, "{models:?}");
    let busy = named("busy").len() + skipped.iter().filter(|s| s.contains("no timestamps")).count();
    assert_eq!((busy, skipped.len()), (2, 2 - named("busy").len()), "{skipped:?}");
    assert_eq!(rows.len(), 2 + 26 + 3 + 6 + named("busy").len());
    for row in rows {
        assert!(row["wall"]["median"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["rate"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["error"].as_f64().unwrap() < 3e-2, "{row}");
        assert!(row["bar"].is_null() && row["times_the_bar"].is_null(), "{row}");
        if row["group"] == "busy" {
            assert!(row["rate"].as_f64().unwrap() <= 100.5, "{row}");
        }
    }
    let (human, _) = ok(&["bench", "--suite", "h200", "--quick", "--device", "cpu"]);
    assert!(human.trim_end().ends_with("0 rows checked and timed, 0 of 0 bars met, 1 skipped"), "{human}");
}

#[test]
fn attention_is_checked_and_timed() {
    let words = ["bench", "--device", "cpu", "--only", "attention", "--tokens", "70,600", "--heads", "4"];
    let (stdout, _) = ok(&[&words[..], &["--key-dim", "20", "--runs", "2", "--json"]].concat());
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert!(row["wall"]["median"].as_f64().unwrap() > 0.0, "{row}");
    }
}

#[test]
fn a_long_prompt_needs_no_more_memory_and_leaves_a_finite_state() {
    // The program itself fails when memory grows or the state is not finite; how steady the times are is for people.
    let (stdout, _) = ok(&["bench", "--device", "cpu", "--only", "million", "--length", "10000", "--json"]);
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let row = &report["rows"][0];
    assert_eq!(row["group"], "million");
    assert_eq!(row["wall"]["runs"], 2, "pieces of 4,096 tokens: {row}");
}
