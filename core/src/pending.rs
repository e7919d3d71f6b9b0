//! Engines that have not landed yet: every call says so.
#![allow(missing_docs, clippy::unused_self, clippy::needless_pass_by_value)]

macro_rules! runner {
    ($name:ident, $ticket:ty) => {
        pub(crate) mod $name {
            use std::sync::Arc;

            use crate::engine::{DecodeRow, Emit, SlotState};
            use crate::error::{Error, Result};
            use crate::model::Spec;

            #[derive(Debug)]
            pub(crate) struct Runner;
            #[derive(Debug)]
            pub(crate) struct Ticket;

            fn no<T>() -> Result<T> {
                Err(Error::Unsupported("this engine".into()))
            }

            impl Runner {
                pub(crate) fn new(_: Arc<Spec>, _: usize) -> Result<Self> {
                    no()
                }
                pub(crate) fn clear(&mut self, _: usize) -> Result<()> {
                    no()
                }
                pub(crate) fn copy(&mut self, _: usize, _: usize) -> Result<()> {
                    no()
                }
                pub(crate) fn prefill(&mut self, _: usize, _: &[u32]) -> Result<()> {
                    no()
                }
                pub(crate) fn score(&mut self, _: usize, _: &[u32]) -> Result<Vec<f32>> {
                    no()
                }
                pub(crate) fn decode(&mut self, _: &[DecodeRow], _: usize) -> Result<$ticket> {
                    no()
                }
                #[allow(dead_code)]
                pub(crate) fn read(&self, _: Ticket) -> Result<Vec<Vec<Emit>>> {
                    no()
                }
                pub(crate) fn logits(&self, _: usize) -> Result<Vec<f32>> {
                    no()
                }
                pub(crate) fn export(&self, _: usize) -> Result<SlotState> {
                    no()
                }
                pub(crate) fn import(&mut self, _: usize, _: &SlotState) -> Result<()> {
                    no()
                }
                pub(crate) fn score_rows(&self) -> usize {
                    512
                }
                #[allow(dead_code)]
                pub(crate) fn max_steps(&self) -> usize {
                    1
                }
            }
        }
    };
}

runner!(cpu, Vec<Vec<Emit>>);
