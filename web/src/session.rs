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
use crate::read::{self, Reading};

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

    /// The tokens that a text at this place is: at a session's start with the one that begins a text.
    ///
    /// # Errors
    /// The session is busy; no tokenizer.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        Ok(self.get()?.encode(text)?)
    }

    /// Checks the options of [`WebSession::generate`].
    ///
    /// # Errors
    /// Options out of their domain.
    pub fn check(&self, options: &JsValue) -> Result<()> {
        Ok(options::generation(options)?.check(&self.model.model())?)
    }

    /// Feeds token ids, in pieces: before each, `go_on(read)` answers, or promises to answer, whether to go on. When it
    /// does not, or something fails, the session is as it was before. Returns nothing then, else what was asked for:
    /// `feed` nothing in particular, `score` −ln p of each token, `gates` β and decay of each, `[tokens, layers, heads, 2]`
    /// (see `Session::gates_async`).
    pub async fn read(&self, what: String, tokens: Vec<u32>, go_on: JsValue) -> Result<Option<Vec<f32>>> {
        let what = Reading::named(&what)?;
        let go_on = crate::loader::function(&go_on, "callback")?;
        self.with(async |s| read::run(s, &tokens, what, &go_on).await).await
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

    /// The session as bytes that every engine of the same model loads.
    pub async fn save(&self) -> Result<Vec<u8>> {
        self.with(async |s| Ok(s.save_async().await?)).await
    }

    /// Replaces this session by a saved one.
    pub async fn restore(&self, bytes: Vec<u8>) -> Result<()> {
        self.with(async |s| Ok(s.restore(&bytes)?)).await
    }

    /// Makes the session's state again on the model's present device, from its tokens: after a lost device. `pause(read)`
    /// is called as by [`WebSession::read`], and must not end it.
    pub async fn refeed(&self, pause: JsValue) -> Result<()> {
        let tokens = self.tokens()?;
        let pause = crate::loader::function(&pause, "callback")?;
        let mut session = self.model.model().session()?;
        read::run(&mut session, &tokens, Reading::Feed, &pause).await?;
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
