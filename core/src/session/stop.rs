//! Stop strings over streamed text.

/// Finds stop strings in text that comes in pieces, and holds back what might still become one.
#[derive(Debug)]
pub(super) struct StopMatcher {
    stops: Vec<String>,
    held: String,
}

impl StopMatcher {
    /// `stops` must not hold empty strings.
    pub(super) fn new(stops: Vec<String>) -> Self {
        Self { stops, held: String::new() }
    }

    /// Adds text. Returns what may be shown, and whether a stop string was found (what is shown ends before it).
    pub(super) fn push(&mut self, text: &str) -> (String, bool) {
        self.held.push_str(text);
        let found = self.stops.iter().filter_map(|s| self.held.find(s.as_str())).min();
        if let Some(at) = found {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        // The longest end of the text that begins a stop string stays.
        let keep = self
            .held
            .char_indices()
            .map(|(i, _)| i)
            .find(|i| {
                let tail = &self.held[*i..];
                self.stops.iter().any(|s| s.len() > tail.len() && s.starts_with(tail))
            })
            .unwrap_or(self.held.len());
        let tail = self.held.split_off(keep);
        (std::mem::replace(&mut self.held, tail), false)
    }

    /// What was held back, at the end.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut m = StopMatcher::new(stops.iter().map(|s| (*s).to_string()).collect());
        let mut out = String::new();
        for p in pieces {
            let (text, stop) = m.push(p);
            out += &text;
            if stop {
                return (out, true);
            }
        }
        (out + &m.finish(), false)
    }

    #[test]
    fn finds_stops_across_pieces() {
        assert_eq!(run(&["END"], &["one E", "N", "D two"]), ("one ".into(), true));
        assert_eq!(run(&["END"], &["one E", "N", "E two"]), ("one ENE two".into(), false));
        assert_eq!(run(&["aab"], &["aa", "aab"]), ("aa".into(), true));
        assert_eq!(run(&["bc", "abcd"], &["xabc"]), ("xa".into(), true));
        assert_eq!(run(&["é!"], &["caf", "é", "é!"]), ("café".into(), true));
        assert_eq!(run(&[], &["all", " of it"]), ("all of it".into(), false));
    }
}
