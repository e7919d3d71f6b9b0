//! Reading: tokens fed piece by piece, so that the Worker hears in between that it is to stop.

use deltanet::Error;
use deltanet::session::{GATE_ROWS, Session};
use js_sys::{Function, Promise};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;

use crate::error::{Failure, Result};

/// What is wanted of the tokens beside that they are fed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reading {
    /// Nothing.
    Feed,
    /// −ln p of each.
    Score,
    /// β and decay of each.
    Gates,
}

impl Reading {
    /// `feed`, `score` or `gates`.
    pub(crate) fn named(name: &str) -> Result<Self> {
        match name {
            "feed" => Ok(Self::Feed),
            "score" => Ok(Self::Score),
            "gates" => Ok(Self::Gates),
            other => Err(Error::argument("reading", "feed, score or gates", other).into()),
        }
    }
}

/// Reads tokens. `go_on(read)` answers before each piece, or promises to, whether to. `None` when it said no: the
/// session is as it was then.
pub(crate) async fn run(
    session: &mut Session,
    tokens: &[u32],
    what: Reading,
    go_on: &Function,
) -> Result<Option<Vec<f32>>> {
    let mut failed = None;
    let ask = async |read: usize| match ask(go_on, &[(read as f64).into()]).await {
        Ok(answer) => answer,
        Err(failure) => {
            failed = Some(failure);
            false
        }
    };
    let mut results = Vec::new();
    let mut ahead = None;
    let rows = match what {
        Reading::Feed => session.reading_rows(),
        Reading::Score => session.score_rows(),
        Reading::Gates => GATE_ROWS,
    };
    // One closure for all three: each would be compiled with all that is around it.
    let feed = async |session: &mut Session, piece: &[u32]| {
        match what {
            Reading::Feed => session.feed_ahead(piece, &mut ahead).await?,
            Reading::Score => results.extend(session.score_async(piece).await?),
            Reading::Gates => results.extend(session.gates_async(piece).await?),
        }
        Ok(())
    };
    let whole = session.in_pieces(tokens, rows, feed, ask).await;
    match failed {
        Some(failure) => Err(failure),
        None => Ok(whole?.then_some(results)),
    }
}

/// Calls a callback that answers, or promises to answer, whether to go on.
pub(crate) async fn ask(callback: &Function, arguments: &[JsValue]) -> Result<bool> {
    let answer = callback.apply(&JsValue::NULL, &arguments.iter().collect()).map_err(failure)?;
    let answer = match answer.dyn_into::<Promise>() {
        Ok(promise) => JsFuture::from(promise).await.map_err(failure)?,
        Err(value) => value,
    };
    Ok(answer.as_bool() != Some(false))
}

fn failure(error: JsValue) -> Failure {
    let text = error.dyn_ref::<js_sys::Error>().map_or_else(|| format!("{error:?}"), |e| String::from(e.message()));
    Failure(Error::Unsupported(format!("the callback failed: {text}")))
}
