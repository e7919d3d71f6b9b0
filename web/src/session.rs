//! A session: one reader's place in a text.

use std::cell::{Ref, RefCell};
use std::rc::Rc;

use deltanet::session::Session;
use js_sys::Function;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::error::{Result, busy};
use crate::generate;
use crate::model::ModelCell;
use crate::options;
use crate::painter::Painter;

/// A text being read and written by a model. While it generates, it is away: every other call says that it is busy.
#[wasm_bindgen]
pub struct WebSession {
    model: Rc<ModelCell>,
    session: RefCell<Option<Session>>,
}

impl WebSession {
    pub(crate) fn new(model: Rc<ModelCell>) -> Result<Self> {
        let session = model.model().session()?;
        Ok(Self { model, session: RefCell::new(Some(session)) })
    }

    fn get(&self) -> Result<Ref<'_, Session>> {
        let session = self.session.try_borrow().map_err(|_| busy())?;
        Ref::filter_map(session, Option::as_ref).map_err(|_| busy())
    }

    /// Runs `work` on the session, which is away meanwhile: a future must not hold a borrow of a cell.
    async fn with<T>(&self, work: impl AsyncFnOnce(&mut Session) -> Result<T>) -> Result<T> {
        let taken = self.session.try_borrow_mut().map_err(|_| busy())?.take();
        let mut session = taken.ok_or_else(busy)?;
        let result = work(&mut session).await;
        *self.session.borrow_mut() = Some(session);
        result
    }
}

#[wasm_bindgen]
impl WebSession {
    /// Every token fed so far.
    ///
    /// # Errors
    /// The session is busy.
    pub fn tokens(&self) -> Result<Vec<u32>> {
        Ok(self.get()?.tokens().to_vec())
    }

    /// Feeds token ids.
    pub async fn feed(&self, tokens: Vec<u32>) -> Result<()> {
        self.with(async |s| Ok(s.feed(&tokens)?)).await
    }

    /// Feeds a text; returns the tokens that were fed, the one that begins a text included.
    #[wasm_bindgen(js_name = feedText)]
    pub async fn feed_text(&self, text: String) -> Result<Vec<u32>> {
        self.with(async |s| {
            let before = s.tokens().len();
            s.feed_text(&text)?;
            Ok(s.tokens().get(before..).unwrap_or_default().to_vec())
        })
        .await
    }

    /// Generates. `on_pieces(tokens, logprobs, texts)` gets what has come, up to `pieces` tokens at a time (an option
    /// beside those of the generation), and answers, or promises to answer, whether to go on. When it does not, the
    /// session's state is that after exactly the tokens it got. Returns `{finish, endToken, tail}`.
    pub async fn generate(&self, options: JsValue, on_pieces: JsValue) -> Result<JsValue> {
        let on_pieces: Function = crate::loader::function(&on_pieces, "callback")?;
        let pieces = options::whole(&options, "pieces", 1.0)?.map_or(64, options::clamp);
        let options = options::generation(&options)?;
        self.with(async |s| generate::run(s, options, pieces, &on_pieces).await).await
    }

    /// Forgets everything.
    pub async fn reset(&self) -> Result<()> {
        self.with(async |s| Ok(s.reset()?)).await
    }

    /// A second session in the same state.
    ///
    /// # Errors
    /// The session is busy, or too many are alive.
    pub fn fork(&self) -> Result<WebSession> {
        let session = self.get()?.fork()?;
        Ok(Self { model: self.model.clone(), session: RefCell::new(Some(session)) })
    }

    /// Logits of the next token.
    pub async fn logits(&self) -> Result<Vec<f32>> {
        self.with(async |s| Ok(s.logits_async().await?)).await
    }

    /// Feeds tokens and returns −ln p of each.
    pub async fn score(&self, tokens: Vec<u32>) -> Result<Vec<f32>> {
        self.with(async |s| Ok(s.score_async(&tokens).await?)).await
    }

    /// Feeds tokens; β and decay of each, `[tokens, layers, heads, 2]`: see `Session::gates_async`.
    pub async fn gates(&self, tokens: Vec<u32>) -> Result<Vec<f32>> {
        self.with(async |s| Ok(s.gates_async(&tokens).await?)).await
    }

    /// The session as bytes that every engine of the same model loads.
    pub async fn save(&self) -> Result<Vec<u8>> {
        self.with(async |s| Ok(s.save_async().await?)).await
    }

    /// Replaces this session by a saved one.
    pub async fn restore(&self, bytes: Vec<u8>) -> Result<()> {
        self.with(async |s| Ok(s.restore(&bytes)?)).await
    }

    /// Makes the session's state again on the model's present device, from its tokens: after a lost device.
    pub async fn refeed(&self) -> Result<()> {
        let tokens = self.tokens()?;
        let mut session = self.model.model().session()?;
        session.feed(&tokens)?;
        *self.session.borrow_mut() = Some(session);
        Ok(())
    }

    /// What paints this session's state, also while it generates.
    ///
    /// # Errors
    /// The session is busy; the model has no state to show.
    pub fn painter(&self) -> Result<Painter> {
        Ok(Painter::new(deltanet::picture::Picture::of(&*self.get()?)?))
    }
}
