//! Params of `attention/**`.

uniforms! {
    /// `attention/prep`
    AttentionPrepParams {
        /// Elements from row to row of the input.
        x_stride: u32,
        /// q's first column; k and v follow.
        x_at: u32,
        /// Elements from row to row of the prepared queries.
        q_stride: u32,
        /// Ring: f32 words a slot. Pages: entries a slot of the page table.
        slot_words: u32,
        /// Entries of a ring.
        window: u32,
        /// Elements from row to row of the entries, where they are kept by row.
        entry_stride: u32,
        /// Row of the first workgroup.
        first_row: u32,
        /// Of the scores.
        scale: f32,
        /// Inside the root of the norms of q and k.
        eps: f32,
    }
    /// `attention/prefill`, `attention/decode`, `attention/solo`
    AttentionParams {
        /// Elements from row to row of the prepared queries.
        q_stride: u32,
        /// Elements from row to row of the output.
        out_stride: u32,
        /// Ring: f32 words a slot. Pages: entries a slot of the page table.
        slot_words: u32,
        /// Tokens that a query sees, itself included; 0: all.
        window: u32,
        /// Elements from row to row of the run's entries.
        fresh_stride: u32,
        /// Row at which the run's rows begin.
        first_row: u32,
        /// Rows of the run, padding included.
        rows: u32,
    }
    /// `attention/combine`
    AttentionCombineParams {
        /// Elements from row to row of the output.
        out_stride: u32,
    }
    /// `attention/store`
    AttentionStoreParams {
        /// f32 words a slot.
        slot_words: u32,
        /// Entries of the ring.
        window: u32,
        /// Elements from row to row of the run's entries.
        fresh_stride: u32,
    }
}
