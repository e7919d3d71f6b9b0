//! Generation: tokens handed to JavaScript in pieces.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use deltanet::session::{Finish, GenerateOptions, Piece, Session};
use js_sys::{Array, Float32Array, Function, Object, Uint32Array};
use wasm_bindgen::JsValue;

use crate::error::Result;
use crate::options::set;
use crate::read::ask;

/// Tokens of an engine that never waits are handed over at least this often.
const EVERY_MS: f64 = 24.0;

/// Runs a generation to its end, or until the callback says no.
pub(crate) async fn run(
    session: &mut Session,
    options: GenerateOptions,
    most: usize,
    on_pieces: &Function,
) -> Result<JsValue> {
    let mut generation = session.generate(options)?;
    let mut batch: Vec<Piece> = Vec::new();
    let mut since = js_sys::Date::now();
    let finish = loop {
        let next = {
            let mut next = pin!(generation.next_async());
            match now(next.as_mut()).await {
                Some(ready) => ready,
                // The engine is at work: show what there is.
                None => {
                    if !batch.is_empty() {
                        if !hand_over(&mut batch, on_pieces).await? {
                            break None;
                        }
                        since = js_sys::Date::now();
                    }
                    next.await
                }
            }
        };
        let piece = match next {
            Ok(Some(piece)) => piece,
            Ok(None) => break generation.finish(),
            Err(error) => {
                // What came before the failure is part of the session.
                if !batch.is_empty() {
                    hand_over(&mut batch, on_pieces).await?;
                }
                return Err(error.into());
            }
        };
        batch.push(piece);
        if batch.len() >= most || js_sys::Date::now() - since >= EVERY_MS {
            if !hand_over(&mut batch, on_pieces).await? {
                break None;
            }
            since = js_sys::Date::now();
        }
    };
    if finish.is_none() {
        generation.stop()?;
    } else if !batch.is_empty() {
        hand_over(&mut batch, on_pieces).await?;
    }
    let result = Object::new();
    let finish = finish.unwrap_or(Finish::Cancelled);
    set(&result, "finish", finish.name());
    set(&result, "endToken", if let Finish::EndOfText(t) = finish { JsValue::from(t) } else { JsValue::NULL });
    set(&result, "tail", generation.tail());
    Ok(result.into())
}

/// What a future has now, without waiting for it.
async fn now<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        })
    })
    .await
}

/// Calls the callback with a batch and empties it. Whether to go on.
async fn hand_over(batch: &mut Vec<Piece>, on_pieces: &Function) -> Result<bool> {
    let tokens: Vec<u32> = batch.iter().map(|p| p.token).collect();
    let logprobs: Vec<f32> = batch.iter().map(|p| p.logprob).collect();
    let texts: Array = batch.drain(..).map(|p| JsValue::from(p.text)).collect();
    let tokens = Uint32Array::from(tokens.as_slice());
    let logprobs = Float32Array::from(logprobs.as_slice());
    ask(on_pieces, &[tokens.into(), logprobs.into(), texts.into()]).await
}
