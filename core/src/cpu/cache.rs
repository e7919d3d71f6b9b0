//! What an unbounded attention layer remembers of a session: entries `k|v` in pages.
//!
//! A cache that grows moves nothing that it holds, and a copy of a slot shares all pages: one that is not full is
//! copied when one of both goes on.

use std::collections::TryReserveError;
use std::sync::Arc;

/// Tokens a page.
const PAGE: usize = 64;

/// Entries of one layer, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Cache {
    /// f32 elements a token.
    entry: usize,
    /// `[PAGE, entry]` each: full ones, then at most one that is not, then empty ones with room.
    pages: Vec<Arc<Vec<f32>>>,
    tokens: usize,
}

impl Cache {
    /// An empty cache of `entry` elements a token.
    pub(super) fn new(entry: usize) -> Self {
        Self { entry, ..Self::default() }
    }

    /// A cache that holds `entries`, `[tokens, entry]`.
    pub(super) fn of(entry: usize, entries: &[f32]) -> Result<Self, TryReserveError> {
        let mut cache = Self::new(entry);
        cache.reserve(entries.len() / entry.max(1))?;
        entries.chunks_exact(entry.max(1)).for_each(|e| cache.push(e));
        Ok(cache)
    }

    /// Forgets everything, and gives the memory back.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.entry);
    }

    /// The entries in pieces of whole tokens.
    pub(super) fn pages(&self) -> &[Arc<Vec<f32>>] {
        &self.pages
    }

    /// `[tokens, entry]`.
    pub(super) fn to_vec(&self) -> Vec<f32> {
        self.pages.iter().flat_map(|p| p.iter().copied()).collect()
    }

    /// Makes room for so many tokens more. What the cache holds stays as it is, also when there is none.
    pub(super) fn reserve(&mut self, tokens: usize) -> Result<(), TryReserveError> {
        let want = (self.tokens + tokens).div_ceil(PAGE);
        self.pages.try_reserve(want.saturating_sub(self.pages.len()))?;
        // Pages from the first that is not full on must be this cache's own.
        for page in self.pages.iter_mut().take(want).skip(self.tokens / PAGE) {
            if Arc::get_mut(page).is_none() {
                let mut own = blank(self.entry)?;
                own.extend_from_slice(page);
                *page = Arc::new(own);
            }
        }
        while self.pages.len() < want {
            self.pages.push(Arc::new(blank(self.entry)?));
        }
        Ok(())
    }

    /// Adds a token's entry, for which there must be room.
    pub(super) fn push(&mut self, entry: &[f32]) {
        let page = self.pages.get_mut(self.tokens / PAGE).and_then(Arc::get_mut);
        debug_assert!(page.is_some(), "room was made before");
        if let Some(page) = page {
            page.extend_from_slice(entry);
            self.tokens += 1;
        }
    }
}

/// A page with room and nothing in it.
fn blank(entry: usize) -> Result<Vec<f32>, TryReserveError> {
    let mut page = Vec::new();
    page.try_reserve_exact(PAGE * entry)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(from: usize, to: usize) -> Vec<f32> {
        (3 * from..3 * to).map(|i| i as f32).collect()
    }

    fn feed(cache: &mut Cache, from: usize, to: usize) {
        cache.reserve(to - from).unwrap();
        entries(from, to).chunks(3).for_each(|e| cache.push(e));
    }

    #[test]
    fn what_goes_in_comes_out_however_it_came() {
        for step in [1, 7, 63, 64, 65, 200] {
            let mut cache = Cache::new(3);
            for from in (0..200).step_by(step) {
                feed(&mut cache, from, (from + step).min(200));
            }
            assert_eq!(cache.to_vec(), entries(0, 200), "{step} at a time");
            assert_eq!(cache.pages().iter().map(|p| p.len()).max(), Some(3 * PAGE));
        }
        assert_eq!(Cache::of(3, &entries(0, 130)).unwrap().to_vec(), entries(0, 130));
        assert!(Cache::of(0, &[]).unwrap().to_vec().is_empty());
    }

    #[test]
    fn growing_moves_nothing() {
        let mut cache = Cache::new(3);
        feed(&mut cache, 0, 65);
        let at = [cache.pages[0].as_ptr(), cache.pages[1].as_ptr()];
        for i in 65..128 {
            feed(&mut cache, i, i + 1);
        }
        assert_eq!([cache.pages[0].as_ptr(), cache.pages[1].as_ptr()], at);
    }

    #[test]
    fn copies_share_full_pages_and_go_their_own_ways() {
        let mut one = Cache::new(3);
        feed(&mut one, 0, 100);
        // Room that is not used yet is shared too.
        one.reserve(100).unwrap();
        let mut two = one.clone();
        assert!(Arc::ptr_eq(&one.pages[1], &two.pages[1]));
        feed(&mut two, 100, 201);
        feed(&mut one, 150, 160);
        assert!(Arc::ptr_eq(&one.pages[0], &two.pages[0]));
        assert_eq!(two.to_vec(), entries(0, 201));
        assert_eq!(one.to_vec(), [entries(0, 100), entries(150, 160)].concat());
        two.clear();
        assert!(two.to_vec().is_empty());
        assert_eq!(one.to_vec().len(), 330);
    }
}
