//! Params of `delta/**`.

super::uniforms! {
    /// `delta/params`: sizes and places of one delta-rule call, the same for all of its kernels. Strides are f32
    /// elements from row to row, places the first column. Rows of q and k are heads of `q_head` and `k_head`
    /// elements; of the other tensors, heads follow one another.
    DeltaParams {
        /// H.
        heads: u32,
        /// HV.
        value_heads: u32,
        /// HV / H.
        group: u32,
        /// K of the state.
        key_dim: u32,
        /// K rounded up to 4: channels of keys and queries, which are zero beyond K. Also the kernels' const K.
        key_pad: u32,
        /// V.
        value_dim: u32,
        /// V rounded up to 4: columns of U.
        value_pad: u32,
        /// σ.
        scale: f32,
        /// Queries.
        q_stride: u32,
        /// Queries.
        q_at: u32,
        /// Queries.
        q_head: u32,
        /// Read keys.
        k_stride: u32,
        /// Read keys.
        k_at: u32,
        /// Read and write keys.
        k_head: u32,
        /// From a read key to its write key, in the same buffer.
        kt_at: u32,
        /// Values.
        v_stride: u32,
        /// Values.
        v_at: u32,
        /// Write strength β.
        b_stride: u32,
        /// Write strength β.
        b_at: u32,
        /// Log decay.
        g_stride: u32,
        /// Log decay.
        g_at: u32,
        /// Output.
        o_stride: u32,
        /// Output.
        o_at: u32,
        /// Elements a state slot.
        s_words: u32,
        /// S in it.
        s_at: u32,
        /// Elements a slot of the preconditioner's sums.
        a_words: u32,
        /// The sums in it.
        a_at: u32,
        /// Preconditioner: write strength of the sums.
        pb_stride: u32,
        /// Preconditioner: write strength of the sums.
        pb_at: u32,
        /// Preconditioner: log decay of the sums.
        pg_stride: u32,
        /// Preconditioner: log decay of the sums.
        pg_at: u32,
        /// Preconditioner: μ.
        mu_at: u32,
        /// First row of every sequence that a dispatch is for, where it is not for all.
        rows_from: u32,
        /// Row of every sequence before which it stops.
        rows_to: u32,
        /// Entries of the table of sequences that count; a buffer may hold more, from other calls.
        sequences: u32,
        /// Likewise of the table of chunks.
        chunks: u32,
    }
}
