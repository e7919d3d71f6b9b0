use super::*;

fn parse(json: &str) -> Result<Config> {
    Config::parse(json, None)
}

#[test]
fn placeholder() {
    assert!(parse("{}").is_err());
}
