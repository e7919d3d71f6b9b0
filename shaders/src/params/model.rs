//! Params of the kernels that models use, the delta rule and the sampling aside.

uniforms! {
    /// `common/begin`
    BeginParams {
        /// Rows of the plan.
        rows: u32,
        /// Words a slot of the head.
        head_words: u32,
        /// The seen mask's place in a slot.
        seen_at: u32,
        /// Vocabulary.
        vocab: u32,
    }
    /// `common/copy_slots`
    CopyParams {
        /// Words a slot.
        words: u32,
    }
    /// `linear/embed`
    EmbedParams {
        /// Eights a row of the table.
        groups: u32,
        /// Elements a row of the output.
        width: u32,
        /// First table row of this part.
        first: u32,
        /// Table rows of this part.
        count: u32,
        /// Words a slot of the head.
        head_words: u32,
        /// Vocabulary.
        vocab: u32,
        /// Elements from row to row of the output.
        out_stride: u32,
    }
    /// `InputParams` of `linear/input`.
    InputParams {
        /// Elements a row.
        in_dim: u32,
        /// Eights a row, the last one padded.
        groups: u32,
        /// Elements from row to row of `x`.
        x_stride: u32,
        /// First column of `x`.
        x_at: u32,
        /// Elements from row to row of the gate; with the scales of heads to make: of the sums of squares.
        gate_stride: u32,
        /// First column of the gate; SwiGLU: of `up`, in `x`.
        gate_at: u32,
        /// Elements a head.
        head_dim: u32,
        /// Inside the root.
        eps: f32,
    }
    /// `OutputParams` of `linear/output`.
    OutputParams {
        /// Rows of this part of the weight.
        out_dim: u32,
        /// Elements from row to row of `out`, or words a slot of the head.
        out_stride: u32,
        /// First column, or the place of the logits plus the part's first row.
        out_at: u32,
        /// The part's first row.
        bias_at: u32,
    }
    /// `ConvOutParams` of `linear/output`.
    ConvOutParams {
        /// First column that is a channel.
        at: u32,
        /// Channels.
        channels: u32,
        /// f32 words a slot of the layer.
        state_words: u32,
        /// The tail's place in a slot.
        tail_at: u32,
    }
    /// `linear/gemv`, `linear/panel`, `linear/gemm`, `linear/coop`, `linear/solo`
    LinearParams {
        /// What is multiplied.
        input: InputParams,
        /// Where it goes.
        output: OutputParams,
        /// A convolution on the way.
        conv: ConvOutParams,
        /// First row of the output, where the input begins at it.
        first_row: u32,
    }
    /// `norm/rms`
    RmsParams {
        /// Elements a row.
        width: u32,
        /// Elements from row to row of `x`.
        x_stride: u32,
        /// First column of `x`.
        x_at: u32,
        /// Elements from row to row of `out`.
        out_stride: u32,
        /// Rows.
        rows: u32,
        /// Inside the root.
        eps: f32,
    }
    /// `norm/head`
    HeadNormParams {
        /// Elements a head.
        head_dim: u32,
        /// Heads.
        heads: u32,
        /// Elements from row to row of `x`.
        x_stride: u32,
        /// First column of `x`.
        x_at: u32,
        /// Elements from row to row of the gate.
        gate_stride: u32,
        /// First column of the gate.
        gate_at: u32,
        /// Elements from row to row of `out`.
        out_stride: u32,
        /// Inside the root.
        eps: f32,
        /// Rows.
        rows: u32,
    }
    /// `norm/swiglu`
    SwiGluParams {
        /// Elements a row.
        width: u32,
        /// Elements from row to row of `x`.
        x_stride: u32,
        /// First column of the gate.
        x_at: u32,
        /// First column of what it gates.
        up_at: u32,
        /// Elements from row to row of `out`.
        out_stride: u32,
    }
    /// `norm/halve`
    HalveParams {
        /// Elements a row.
        width: u32,
        /// Elements from row to row of `x`.
        x_stride: u32,
        /// First column of `x`.
        x_at: u32,
        /// Elements from row to row of `out`.
        out_stride: u32,
    }
    /// `ConvParams` of `conv/taps`; alone, the params of `conv/tail`.
    ConvParams {
        /// `2·H·K + HV·V`.
        channels: u32,
        /// Elements from row to row of `x`.
        x_stride: u32,
        /// First channel's column.
        x_at: u32,
        /// f32 words a slot of the layer.
        state_words: u32,
        /// The tail's place in a slot.
        tail_at: u32,
        /// Elements from row to row of the output.
        out_stride: u32,
        /// Padding.
        pad0: u32,
        /// Padding.
        pad1: u32,
    }
    /// `GateParams` of `conv/gates`.
    GateParams {
        /// Elements from row to row of the projections.
        x_stride: u32,
        /// Likewise of what holds the decay's projection.
        aux_stride: u32,
        /// First column of β's projection.
        beta_at: u32,
        /// Of the decay's.
        decay_at: u32,
        /// Of the preconditioner's write strength.
        sums_beta_at: u32,
        /// Of its decay.
        sums_g_at: u32,
        /// `A_log` in the pack, `[HV]`.
        a_log: u32,
        /// `dt_bias` in the pack, `[HV or HV·K]`.
        dt_bias: u32,
        /// The preconditioner's `A_log` in the pack, `[H]`.
        sums_a_log: u32,
        /// Its `dt_bias`, `[H]`.
        sums_dt_bias: u32,
        /// 1, or 2 for negative eigenvalues.
        beta_scale: f32,
        /// Lower bound of a bounded gate.
        lower: f32,
    }
    /// `conv/prep`
    PrepParams {
        /// The convolution.
        conv: ConvParams,
        /// The gates.
        gates: GateParams,
        /// Elements from row to row of the gates.
        gates_stride: u32,
    }
    /// `mixer/solo`
    SoloStepParams {
        /// The gates.
        gates: GateParams,
        /// q's first column.
        x_at: u32,
        /// Elements from row to row of `out`.
        out_stride: u32,
        /// f32 words a slot of the layer.
        state_words: u32,
        /// S's place in a slot.
        state_at: u32,
        /// σ.
        scale: f32,
        /// First row of the plan in the window.
        first_row: u32,
    }
    /// `mixer/lanes`
    LanesParams {
        /// The gates.
        gates: GateParams,
        /// q's first column.
        x_at: u32,
        /// Elements from row to row of `out`.
        out_stride: u32,
        /// f32 words a slot of the layer.
        state_words: u32,
        /// S's place in a slot.
        state_at: u32,
        /// σ.
        scale: f32,
        /// The output norm's weights in the pack.
        norm: u32,
        /// Elements from row to row of the sums of squares.
        sums_stride: u32,
        /// Elements from row to row of what holds the output gate.
        z_stride: u32,
        /// Its first column.
        z_at: u32,
    }
    /// `mixer/step`
    StepParams {
        /// The gates.
        gates: GateParams,
        /// q's first column.
        x_at: u32,
        /// Elements from row to row of `out`.
        out_stride: u32,
        /// f32 words a slot of the layer.
        state_words: u32,
        /// S's place in a slot.
        state_at: u32,
        /// σ.
        scale: f32,
        /// Inside the root of the output's norm.
        eps: f32,
        /// The norm's weights in the pack.
        norm: u32,
        /// Elements from row to row of what holds the output gate.
        z_stride: u32,
        /// Its first column.
        z_at: u32,
    }
}
